"""The examples as they are shipped: each of their processes is killed once, and what the README promises holds. A nightly run does
that with all arrangements (FANIN_EXAMPLES=all), else with the quickstart."""

import os
import re

import pytest
from support.fanin_run import SOURCE, Folder, Run, check_balanced, verify

ARRANGEMENTS = {name: (f"{name}/{name}.toml", ("--set", "buffers.readout=16MiB", "--set", "buffers.builder=48MiB"))
                for name in ("baseline", "folded")}
ARRANGEMENTS |= {"timeslice": ("timeslice/timeslice.toml", ()), "trapezoidal": ("trapezoidal/trapezoidal.toml", ()),
                 "quickstart": ("quickstart.toml", ("--set", "buffers.readout=16MiB", "--set", "buffers.builder=48MiB"))}
CHOSEN = sorted(ARRANGEMENTS) if os.environ.get("FANIN_EXAMPLES") == "all" else ["quickstart"]


@pytest.mark.parametrize("name", CHOSEN)
def test_each_process_of_an_example_may_die(name):
    file, small = ARRANGEMENTS[name]
    processes = ["evm"]
    while processes:
        process = processes.pop()
        with Folder() as folder, Run(SOURCE / "examples" / file, "--duration", "1h", "--set", f"run.output={folder.path / 'out'}",
                                     "--set", "buffers.huge_pages=off", *small) as run:
            run.wait_for_events(1)
            run.kill(process)
            if process == "evm":  # the run ends; the others stand in the log
                processes = sorted(set(re.findall(r" debug +(\S+) is process \d+$", run.text(), re.M)) - {"evm"})
                result = run.finish(1)
            else:
                run.wait_for("is gone")
                run.wait_for_events(1)
                run.signal()
                result = run.finish()
                check_balanced(result)
            verify(result)
