"""The headers of the sockets and of Source, Filter and EventSink begin with a complete example, which compiles."""

import os
import re
import shutil
import subprocess

import pytest

from fanin_run import SOURCE, Folder

HEADERS = [*(f"message/{name}.hpp" for name in ("low_latency", "high_throughput_sender", "high_throughput_receiver", "publisher",
                                                "subscriber")),
           "source/source.hpp", "builder/filtering/filter.hpp", "storage/event_sink.hpp"]
FUNCTIONS = ("main", "fanin_plugin_abi", "fanin_register")  # each program has one


def test_examples_of_headers_compile():
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        pytest.skip("there is no compiler")
    includes, programs = "", ""
    for number, header in enumerate(HEADERS):
        text = (SOURCE / "src/fanin" / header).read_text()
        example = re.match(r"(?:///.*\n)*?/// ```cpp\n((?:///.*\n)*?)/// ```\n", text)
        assert example, f"{header} does not begin with an example"
        lines = [line[4:] for line in example[1].splitlines()]
        includes += "".join(line + "\n" for line in lines if line.startswith("#include"))
        programs += "".join(f"#undef {name}\n#define {name} {name}_{number}\n" for name in FUNCTIONS)
        programs += f"namespace example_{number} {{\n#line 1 \"{header}\"\n"
        programs += "".join(("" if line.startswith("#include") else line) + "\n" for line in lines) + "}\n"
    with Folder() as folder:
        folder.write("examples.cpp", includes + programs)
        done = subprocess.run([compiler, "-std=c++23", "-Wall", "-Wextra", "-Werror", "-Wno-return-type", "-fsyntax-only", f"-I{SOURCE}/src",
                               str(folder.path / "examples.cpp")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
