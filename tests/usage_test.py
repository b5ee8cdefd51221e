"""What a user gets wrong is said in one line, with file, line, key and reason; the exit status is 2, or 1 where only the
run shows it."""

import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path

from fanin_run import FANIN, LONGEST_S, Folder, Run, SOURCE, check_balanced, fanin, wait_until


def says(status, pattern, *arguments, env=None):
    done = fanin(*arguments, env=env)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == status, f"exit status of {arguments}: {done.stderr}"
    assert len(lines) == 1, f"not one line for {arguments}: {done.stderr}"
    assert pattern in lines[0], f"{arguments}: {lines[0]!r} does not say {pattern!r}"


def test_wrong_command_lines():
    says(2, "subcommand is required")
    says(2, "there is no command 'nonsense'", "nonsense")
    says(2, "is a folder, not a configuration", "check", "/")
    says(2, "CONFIG is required", "run")
    says(2, "--nope", "run", "x.toml", "--nope")
    says(2, "/nowhere.toml: cannot be opened: No such file or directory", "run", "/nowhere.toml")
    says(2, "FILE is required", "verify")
    with Folder() as folder:
        config = folder.small()
        says(2, "--set:1: \"nonsense\" is not of the form key=value", "run", config, "--set", "nonsense")
        says(2, "--duration: \"5\" has no unit", "run", config, "--duration", "5")
        says(2, "--duration: is zero; leave it out to run until stopped", "run", config, "--duration", "0s")
        for events in ("many", "0", "-1", "1" * 30):
            says(2, f"--events: \"{events}\" is not a whole number", "run", config, "--events", events)
        says(2, "--json /nowhere/result.json: No such file or directory", "run", config, "--json", "/nowhere/result.json")
        says(2, "--node: there is no node \"bu7\"; there are: evm, ru0, ru1, bu0, bu1", "run", config, "--node", "bu7")


def test_a_pipe_is_read_but_one_that_nobody_reads_is_not_waited_for():
    with Folder() as folder:
        pipe = folder.path / "pipe"
        os.mkfifo(pipe)
        says(2, f"--json {pipe}: No such device or address", "verify", "--json", pipe, "/nowhere/run.h5")
        done = subprocess.run([FANIN, "check", "/dev/stdin"], input=folder.small().read_text(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_what_can_be_known_before_files_are_read_is_said_before():
    says(2, "--json /nowhere/result.json: No such file or directory", "verify", "--json", "/nowhere/result.json", "/nowhere/run.h5")
    for event in ("-1", "1" * 30):
        says(2, f"--event: {event}: must be a whole number", "inspect", "/nowhere/run.h5", "--event", event)


def test_help_and_version_succeed():
    for arguments in (["--help"], ["run", "--help"], ["verify", "--help"], ["--version"]):
        done = fanin(*arguments)
        assert done.returncode == 0, f"exit status of {arguments}"
        assert done.stdout and not done.stderr, f"{arguments}: {done.stdout!r} {done.stderr!r}"


def test_output_that_cannot_be_written_is_a_failure():
    with open("/dev/full", "w") as full:
        done = subprocess.run([FANIN, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1, done.stderr
        done = subprocess.run([FANIN, "doctor"], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1 and "is the disk full?" in done.stderr, done.stderr


def test_a_low_limit_of_descriptors_is_raised_as_far_as_this_is_allowed():
    limited = 'ulimit -Sn 256; ulimit -Hn 2048; exec "$0" doctor --json -'
    done = subprocess.run(["sh", "-c", limited, FANIN], stdout=subprocess.PIPE, text=True)
    findings = json.loads(done.stdout)["findings"]
    assert [finding["found"] for finding in findings if finding["what"] == "open files"] == ["2048"], findings


def test_results_for_a_standard_output_that_is_closed_or_full_are_an_error_in_one_line():
    evb = ("bench", "evb", "--duration", "50ms", "--runs", "1", "--no-baselines", "--quiet", "--stolen-max", "100")
    with Folder() as folder:
        config = folder.small()
        for where, status, reason in ((">&-", 2, "standard output is closed"), (">/dev/full", 1, "No space left on device")):
            for option, *arguments in (("--json", *evb), ("--csv", *evb, "--every", "50ms"), ("--plot", *evb),
                                       ("--json", "run", config, "--events", "10", "--quiet"),
                                       ("--json", "doctor"), ("--json", "verify", SOURCE / "LICENSE"),
                                       ("--json", "receive", "tcp://127.0.0.1:0", "--duration", "1ms", "--quiet")):
                if option == "--json" and arguments[0] == "verify" and status == 1:
                    continue  # there is no result
                done = subprocess.run(["sh", "-c", f'"$@" {where}', "sh", FANIN, *map(str, arguments), option, "-"],
                                      stderr=subprocess.PIPE, text=True, timeout=LONGEST_S)
                assert done.returncode == status, f"{arguments} {where}: {done.returncode}, {done.stderr}"
                assert done.stderr.count(f"{option} -: {reason}\n") == 1, f"{arguments} {where}: {done.stderr}"
                assert "could be written" not in done.stderr, f"said twice: {done.stderr}"
        for arguments in (("check", config), ("--help",)):
            done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", FANIN, *map(str, arguments)], stderr=subprocess.PIPE, text=True)
            assert done.returncode == 1, arguments
            assert done.stderr == "fanin: not all of the output could be written: standard output is closed\n"


def test_two_results_need_two_places():
    with Folder() as folder:
        file = folder.path / "result"
        for one, other, *arguments in (("--json", "--csv", "evb", "--every", "1s"), ("--json", "--plot", "evb"),
                                       ("--csv", "--plot", "evb", "--every", "1s"), ("--json", "--plot", "stream")):
            for place in ("-", file):
                says(2, f"{one} {place} and {other} {place} are one place: each needs its own", "bench", *arguments, other, place, one, place)
        says(2, f"--json {file} and --plot {folder.path}/./result are one place", "bench", "nxn", "--json", file,
             "--plot", f"{folder.path}/./result")
        says(2, "--json - and --plot /dev/stdout are one place", "bench", "pubsub", "--json", "-", "--plot", "/dev/stdout")


def test_text_from_outside_does_not_command_the_terminal():
    with Folder() as folder:
        manifest = folder.write("run000001.manifest.json",
                                '{"manifest":"version 1","run":1,"run_id":1,"protocol":"pull","integrity":"none","started_unix_ns":1,"fanin":"0"}\n'
                                '{"file":"run\\u001b[31m\\n.h5","node":"bu0","incarnation":1}\n'
                                '{"oops\\u009b":1}\n')
        config = folder.small(more='[[plugin]]\npath = "no\\u001b[2Jwhere.so"\n')
        for arguments in (["no\x1b[31m"], ["check", "no\x1b[31m\n.toml"], ["run", "--no\x1b"], ["verify", "\u009b\u202e.h5"],
                          ["verify", manifest], ["inspect", manifest], ["check", config], ["run", config]):
            done = fanin(*arguments)
            assert done.returncode != 0, arguments
            for character in "\x1b\x7f\x9b\u202e":
                assert character not in done.stdout + done.stderr, f"{arguments}: {done.stdout!r} {done.stderr!r}"


def test_what_a_plug_in_says_does_not_command_the_terminal():
    plugin = next(Path(FANIN).resolve().parent.parent.rglob("libfanin_test_plugin_constant.so"))
    with Folder() as folder:
        config = folder.write("run.toml", f"""
[run]
output = "{folder.path}/out"
[buffers]
readout = "16MiB"
builder = "16MiB"
[[plugin]]
path = "{plugin}"
[[readout]]
source = [{{ id = 1, type = "test_constant", failure = "gone\\u001b[2J\\u202e" }}]
[[builder]]
""")
        done = fanin("run", config)
        assert "gone?[2J?" in done.stdout + done.stderr, done.stderr
        for character in "\x1b\u202e":
            assert character not in done.stdout + done.stderr, done.stderr


CONSTANT = '''
[run]
output = "{folder}/out"
[buffers]
readout = "16MiB"
builder = "16MiB"
huge_pages = "off"
[[plugin]]
path = "{plugin}"
[[readout]]
source = [{{ id = 1, type = "test_constant", {more} }}]
[[builder]]
'''


def plugin_of_tests(name):
    return next(Path(FANIN).resolve().parent.parent.rglob(f"libfanin_test_plugin_{name}.so"))


def test_a_plug_in_that_ends_the_process_that_makes_it_is_named():
    with Folder() as folder:
        config = folder.path / "run.toml"
        last = f'{config}:11: readout.0.source.0: making source "0x1" of type "test_constant" has not returned: this process ends'
        # ThreadSanitizer has no room left for a signal handler when the stack overflows.
        overflows = () if "thread" in fanin("--version").stdout else ("overflows",)
        for command in ("check", "run"):
            for how in ("aborts", "faults", "exits", "leaves", *overflows):
                more = f'made = "{how}"'
                folder.write("run.toml", CONSTANT.format(folder=folder.path, plugin=plugin_of_tests("constant"), more=more))
                done = fanin(command, config)
                assert done.returncode != 0, (command, how)
                assert done.stderr.splitlines().count(last) == 1, f"{command}, {how}: {done.stderr}"
            config.write_text(config.read_text().replace(str(plugin_of_tests("constant")), str(plugin_of_tests("that_aborts"))))
            done = fanin(command, config)
            assert done.returncode != 0 and f"{config}:9: plugin.0.path: loading plug-in " in done.stderr, done.stderr
            more = f'[[plugin]]\npath = "{plugin_of_tests("filter")}"\n[[filter]]\ntype = "test_filter"\nmade = "aborts"\n'
            done = fanin(command, folder.small(more=more + '[[stream]]\nname = "physics"\n'))
            assert done.returncode != 0 and 'filter.0: making filter "fu0" of type "test_filter"' in done.stderr, done.stderr


def test_a_plug_in_that_hangs_while_it_is_made_is_named_when_the_user_ends_it():
    with Folder() as folder:
        for command, number in (("check", signal.SIGINT), ("run", signal.SIGTERM)):
            here = folder.path / command
            config = folder.write("run.toml", CONSTANT.format(folder=folder.path, plugin=plugin_of_tests("constant"),
                                                              more=f'made = "hangs", made_path = "{here}"'))
            process = subprocess.Popen([FANIN, command, config], stderr=subprocess.PIPE, text=True)
            wait_until(here.exists, "the plug-in is made")
            process.send_signal(number)
            stderr = process.communicate(timeout=LONGEST_S)[1]
            assert process.returncode == -number, stderr
            assert stderr == (f'{config}:11: readout.0.source.0: making source "0x1" of type "test_constant" has not returned: '
                              "this process ends\n"), stderr


def test_a_plug_in_that_ends_a_process_of_a_run_is_named():
    with Folder() as folder:  # the launcher makes it once, to see whether the run can begin
        config = folder.write("run.toml", CONSTANT.format(folder=folder.path, plugin=plugin_of_tests("constant"),
                                                          more=f'made = "aborts", made_path = "{folder.path}/there"'))
        with Run(config) as run:
            run.finish(1)
        assert 'making source "0x1" of type "test_constant" has not returned: this process ends' in run.text(), run.text()
        assert "ru0 died: killed by signal 6" in run.text(), run.text()


def test_a_plug_in_that_ends_the_process_of_the_whole_run_does_not_end_it_well():
    with Folder() as folder:
        more = f'[[plugin]]\npath = "{plugin_of_tests("filter")}"\n[[filter]]\ntype = "test_filter"\naction = "exits"\n'
        done = fanin("run", folder.small(more=more), "--events", 100, "--set", "network.url=inproc")
        assert done.returncode == 1, done.stderr
        assert "a plug-in or a library has called exit() or _exit(): this process ends without a result" in done.stderr, done.stderr


def test_only_the_terminal_writes_to_the_terminal():
    """It alone makes text from outside harmless; see apps/fanin/terminal.hpp."""
    writes = re.compile(r"fmt::print|\bf?(printf|puts)\b|std::(cout|cerr|clog)|println")
    for source in sorted((SOURCE / "apps/fanin").glob("*.[ch]pp")):
        if source.name != "terminal.cpp":
            found = [line for line in source.read_text().splitlines() if writes.search(line)]
            assert not found, f"{source.name}: {found}"


def test_wrong_configurations():
    with Folder() as folder:
        config = folder.small(more='[[plugin]]\npath = "nowhere.so"\n')
        says(2, "run.toml:24: plugin.0.path: plug-in", "run", config)
        for command in ("run", "check"):
            config = folder.small(more="[storage]\nmaxfile = \"1GiB\"\n")
            says(2, "run.toml:24: storage.maxfile: unknown key; did you mean max_file?", command, config)
            config = folder.small(rate="20")
            says(2, "trigger.rate: \"20\" has no unit", command, config)
        config = folder.small()
        says(2, "there is no source of type \"camera\"; known: emulator, hld, receive, sls", "run", config,
             "--set", "source.type=camera")
        says(2, "--set:1: readout.0.source.0.size_mean: unknown key; known here: ", "check", config, "--set", "source.type=hld")
        says(2, "size_meen: unknown key", "run", config, "--set", "source.size_meen=1KiB")
        says(2, "--set:1: readout.0.source.0.size_mean: \"1000\" has no unit", "run", config, "--set", "source.size_mean=1000")
        says(2, "there is no transport for carrier-pigeon://; there are: tcp, shm, verbs, inproc", "run", config,
             "--set", "network.url=carrier-pigeon://x")
        for command in ("run", "check"):
            says(2, "--set:1: network.url: tcp://127.0.0.1?foo=1: option \"foo\" is not known", command, config,
                 "--set", "network.url=tcp://127.0.0.1?foo=1")
            says(2, "congestion control \"foo\"", command, config, "--set", "network.data=tcp://127.0.0.1?congestion=foo")
            says(2, '--set:1: network.url: tcp://no-such-host.invalid: host "no-such-host.invalid": ', command, config,
                 "--set", "network.url=tcp://no-such-host.invalid")
            says(2, "network.url: ofi+nobody", command, config, "--set", "network.url=ofi+nobody://127.0.0.1")


def test_a_recording_that_cannot_be_read_is_said_with_file_line_and_key():
    with Folder() as folder:
        pipe = folder.path / "pipe"
        os.mkfifo(pipe)
        for path, reason in (("/no/such.hld", "No such file or directory"), ("/etc", "is not a regular file"),
                             (pipe, "is not a regular file")):
            config = folder.write("run.toml", '[buffers]\nreadout = "16MiB"\nbuilder = "16MiB"\n[[readout]]\n'
                                  f'source = [{{ id = 1, type = "hld", path = "{path}", address = 1 }}]\n[[builder]]\n')
            for command in ("check", "run"):
                says(2, f"{config}:5: readout.0.source.0: {path}: {reason}", command, config)
        huge = f'master = "{folder.write("master", "Image Size : 300000000 bytes")}"'
        data = folder.write("d_0_f0.raw", "")
        config = folder.write("run.toml", f'[[readout]]\nsource = [{{ id = 1, type = "sls", path = "{data}", {huge} }}]\n[[builder]]\n')
        says(2, f"{config}:2: readout.0.source.0: image size 300000000 is over the maximum", "check", config)


def test_what_this_host_does_not_have():
    with Folder() as folder:
        config = folder.small()
        for command in ("run", "check"):
            says(2, "--set:1: builder.0: ", command, config, "--set", "buffers.builder=60TiB")
            says(2, "buffers.builder: 100 TiB is more than any host has", command, config, "--set",
                 "buffers.builder=100TiB")
            says(2, "--set:1: event_manager: NUMA node 1000", command, config, "--set", "buffers.numa_node=1000")
        config = folder.write("cpu.toml", config.read_text().replace("[[builder]]", '[[builder]]\ncpu = "900-901"'))
        says(2, "builder.0.cpu: CPU 900 does not exist", "check", config)


def test_pools_too_small_for_the_rate():
    with Folder() as folder:
        config = folder.small(rate="100kHz")
        says(2, "buffers.readout: 16 MiB is too small for \"ru0\": 200 MB/s for 300 ms (buffers.hold + event.latency) take "
                "57.2 MiB; set it to \"58MiB\", or lower the rate", "check", config)
        config = folder.small()
        says(2, "--set:1: buffers.builder: 4 MiB is too small for \"bu0\": two batches (4 MiB)", "check", config,
             "--set", "buffers.builder=4MiB")
        says(2, "fragments may have 64 MiB need", "check", config, "--set", "source.fragment_max=64MiB")


def test_recorded_files_that_are_not_there_or_no_recordings():
    with Folder() as folder:
        example = SOURCE / "examples" / "replay-hld.toml"
        says(2, "/nowhere.hld: ", "run", example, "--set", "source.path=/nowhere.hld")
        wrong = folder.write("wrong.hld", "this is no recording" * 100)
        with Run(example, "--set", f"source.path={wrong}", "--set", f"run.output={folder.path}/out", "--set",
                 "buffers.huge_pages=off") as run:
            run.wait_for(r"wrong.hld: offset 4: ")
            result = run.finish(status=1)
        check_balanced(result)
        assert sorted(result["failed_sources"]) == ["0x8000", "0xe000", "0xe001", "0xe002", "0xe003"], "failed sources"


def test_a_port_in_use():
    with Folder() as folder, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = folder.small()
        with Run(config, "--set", f"network.control=tcp://127.0.0.1:{port}") as run:
            run.finish(status=1)
            assert f"tcp://127.0.0.1:{port}" in run.text() and "the port is in use" in run.text(), run.text()
            assert "the port is in use" in run.summary(), f"not in the summary: {run.summary()}"
        with Run(config, "--set", f"builder.0.url=tcp://127.0.0.1:{port}", "--set", "builder.0.count=1") as run:
            run.wait_for("bu0 cannot take part: the run needs it from the start, and ends")
            result = run.finish(status=1)
            assert "bu0: " in result["error"] and "the port is in use" in result["error"], result["error"]


def test_the_port_of_a_source_in_use():
    with Folder() as folder, socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        config = folder.write("run.toml", f"""
[run]
output = "discard"
[network]
url = "tcp://127.0.0.1"
[buffers]
readout = "16MiB"
builder = "48MiB"
huge_pages = "off"
[[readout]]
source = [{{ id = 1, type = "receive", listen = "{url}" }}]
[[builder]]
""")
        with Run(config) as run:
            run.wait_for("ru0 cannot take part: the run needs it from the start, and ends")
            result = run.finish(status=1)
        assert "readout.0.source.0.listen: " in result["error"] and url in result["error"], result["error"]
        assert "the port is in use" in result["error"], result["error"]


def test_a_builder_unit_that_cannot_make_its_file():
    with Folder() as folder:
        config = folder.small()
        (folder.path / "out").mkdir()
        taken = folder.write("out/run000007_bu1_i1_0001.h5", "of somebody else")
        with Run(config, "--set", "run.number=7", "--run-id", "5") as run:
            run.wait_for("bu1 cannot take part: the run needs it from the start, and ends")
            result = run.finish(status=1)
        assert result["error"].startswith("bu1: ") and str(taken) in result["error"], result["error"]
        assert taken.read_text() == "of somebody else"


def test_an_output_folder_that_cannot_be_made():
    with Folder() as folder:
        blocker = folder.write("file", "not a folder")
        for command in ("run", "check"):
            says(2, f"--set:1: run.output: folder {blocker}/out cannot be made: {blocker}: not a folder", command,
                 folder.small(), "--set", f"run.output={blocker}/out")
            says(2, f"run.output: folder {blocker} cannot be written: {blocker}: not a folder", command, folder.small(),
                 "--set", f"run.output={blocker}")


def test_a_port_in_use_of_a_source():
    with Folder() as folder, socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        config = folder.write("run.toml", f"""
[run]
output = "discard"
[buffers]
huge_pages = "off"
[[readout]]
source = [{{ id = 1, type = "receive", listen = "{url}" }}]
[[builder]]
""")
        with Run(config) as run:
            run.wait_for("ru0 cannot take part: the run needs it from the start, and ends")
            result = run.finish(status=1)
        assert f"run.toml:7: readout.0.source.0.listen: {url}: the port is in use; `ss -ltnp` shows by whom" in result["error"]


def test_two_nodes_with_one_name():
    with Folder() as folder:
        config = folder.small()
        with Run(config) as run:
            url = run.url()
            run.wait_for_events(100)
            with Run(config, "--node", "ru1", "--set", f"network.control={url}") as second:
                second.wait_for("there is a node 'ru1' already")
                second.finish(status=1)
            run.wait_for_events(100)
            run.signal()
            result = run.finish()
        check_balanced(result)
        assert result["events"]["incomplete"] == 0, "incomplete events"


def test_a_node_with_another_configuration_is_refused():
    with Folder() as folder:
        config = folder.small()
        with Run(config) as run:
            url = run.url()
            run.wait_for_events(100)
            for change in ("event.integrity=none", "readout.0.source.0.offset=-7"):
                with Run(config, "--node", "ru1", "--set", f"network.control={url}", "--set", change) as other:
                    other.wait_for("another configuration than the event manager")
                    result = other.finish(status=1)
                assert "another configuration" in result["error"], result
                assert "died" not in other.text(), other.text()
            with Run(folder.write("named.toml", config.read_text().replace("[[readout]]", '[[readout]]\nname = "left"')),
                     "--node", "left1", "--set", f"network.control={url}") as other:
                other.wait_for("the event manager knows no node 'left1'")
                other.finish(status=1)
                assert "died" not in other.text(), other.text()
            run.signal()
            check_balanced(run.finish())


def test_strange_bytes_on_the_control_port_do_not_disturb_the_run():
    with Folder() as folder:
        with Run(folder.small()) as run:
            port = int(run.url().rsplit(":", 1)[1])
            run.wait_for_events(100)
            for attempt in range(20):
                with socket.create_connection(("127.0.0.1", port)) as outsider:
                    own_port = outsider.getsockname()[1]
                    outsider.sendall(b"GET / HTTP/1.1\r\nHost: fanin\r\n\r\n" * 10)
                    try:
                        while outsider.recv(4096):
                            pass
                    except ConnectionResetError:
                        pass
                if attempt == 0:
                    run.wait_for(f"warning evm +tcp://127.0.0.1:{own_port}: is not a fanin process")
            run.wait_for_events(100)
            run.signal()
            result = run.finish()
        check_balanced(result)
        assert result["events"]["incomplete"] == 0, "incomplete events"


CLUSTER = """
[network]
control = "tcp://:7999"
[event_manager]
host = "{0}"
[[readout]]
host = "{0}"
source = [{{ type = "emulator", fragment_max = "32KiB" }}]
[[builder]]
host = "{1}"
"""


def test_a_host_finds_its_part():
    with Folder() as folder:
        config = folder.write("cluster.toml", CLUSTER.format("no-such-host-a", "no-such-host-b"))
        says(2, "none of its nodes runs on this host", "run", config)
        done = fanin("check", config)
        assert done.returncode == 0, done.stderr
        assert "tcp://no-such-host-a:7999" in done.stdout, done.stdout
        assert "total memory on no-such-host-b" in done.stdout, done.stdout


def test_a_slurm_task_finds_its_part():
    with Folder() as folder:
        config = folder.small(readouts=1, builders=1)
        control = ("--set", f"network.control=tcp://127.0.0.1:{free_port()}")
        slurm = [dict(os.environ, SLURM_PROCID=str(task), SLURM_STEP_NUM_TASKS="3") for task in range(3)]
        says(2, "Slurm started 2 tasks for 3 processes", "run", config,
             env=dict(os.environ, SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="2"))
        # In any order of starting: the event manager last.
        with Run(config, *control, env=slurm[2]) as bu, Run(config, *control, env=slurm[1]) as ru:
            with Run(config, *control, "--events", "500", env=slurm[0]) as evm:
                result = evm.finish()
                ru.finish()
                bu.finish()
        check_balanced(result)
        assert result["events"]["built"] == 500, "events"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
