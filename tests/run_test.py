"""Whole runs of real processes that end as they should."""

import json
import os
import re
import shutil
import socket
import time
import tomllib

from fanin_run import Folder, Run, SOURCE, check_balanced, fanin, h5py, verify


def short_run(*settings, seconds="2s", example="quickstart.toml"):
    with Folder() as folder:
        arguments = [argument for setting in settings for argument in ("--set", setting)]
        with Run(SOURCE / "examples" / example, "--duration", seconds, *arguments, cwd=folder.path) as run:
            result = run.finish()
        check_balanced(result)
        assert result["events"]["built"] > 0, "no event was built"
        assert result["events"]["lost"] == 0, "lost events"
        assert result["fragments"]["lost"] == 0, "lost fragments"
        verified = verify(result, folder.path)
        assert verified["events"] == result["events"]["built"], "events in the files"
        assert verified["incomplete"] == result["events"]["incomplete"], "incomplete events in the files"
        return result


SMALLER = ["trigger.rate=2kHz", "buffers.builder=64MiB", "buffers.readout=16MiB", "buffers.huge_pages=off"]


def test_the_quickstart_builds_events_and_its_files_verify():
    result = short_run(*SMALLER)
    for key in ("run", "duration_s", "events", "fragments", "bytes_built", "event_rate_hz", "throughput_bytes_per_s",
                "balanced", "files", "nodes", "latency_us", "gaps", "sources"):
        assert key in result, f"no key {key!r} in the result"
    assert sorted(result["nodes"]) == ["bu0", "bu1", "evm", "ru0", "ru1"], "nodes"
    for name, node in result["nodes"].items():
        assert node["peak_rss_bytes"] > 0 and node["cpu_s"] > 0, f"{name}: no memory or time in {node}"
        assert node["pool_bytes"] > 0, f"{name}: no pools in {node}"
        assert name == "evm" or node["alive"], f"{name} was there to the end: {node}"
    assert sorted(result["sources"]) == ["0x100", "0x101", "0x102", "0x103"], "sources"


def test_pull_builds_the_same():
    short_run("network.protocol=pull", *SMALLER)


def test_inproc_builds_the_same_in_one_process():
    result = short_run("network.url=inproc://", *SMALLER)
    assert {node["process"] for node in result["nodes"].values()} == {"all"}, "processes"


def test_data_over_inproc_and_control_over_tcp_work_together():
    short_run("network.control=tcp://127.0.0.1", "network.data=inproc://", *SMALLER)


def test_a_network_that_refuses_each_message_once_loses_nothing():
    for protocol in ("push", "pull"):
        short_run("network.url=fault+tcp://127.0.0.1?backpressure=1", f"network.protocol={protocol}", *SMALLER,
                  seconds="1s")


def test_several_nodes_share_a_process():
    with Folder() as folder:
        config = folder.small(more='[[process]]\nname = "left"\nnodes = ["evm", "ru0", "bu0"]\n'
                                   '[[process]]\nname = "right"\nnodes = ["ru1", "bu1"]\n')
        with Run(config, "--duration", "1s") as run:
            result = run.finish()
        check_balanced(result)
        processes = {name: node["process"] for name, node in result["nodes"].items()}
        assert processes == {"evm": "left", "ru0": "left", "bu0": "left", "ru1": "right", "bu1": "right"}, "processes"
        verify(result)


def test_ipv6_works():
    short_run("network.url=tcp://[::1]", *SMALLER, seconds="1s")


def test_a_number_of_events_ends_the_run():
    with Folder() as folder:
        with Run(folder.small(), "--events", "3000") as run:
            result = run.finish()
        check_balanced(result)
        assert result["events"]["built"] == 3000, "events"
        assert verify(result)["complete"] == 3000, "complete events"


def test_batches_of_one_event_lose_nothing():
    config = """
[run]
output = "discard"
duration = "500ms"
[network]
url = "shm"
[event]
batch_events = 1
[[readout]]
count = 2
source = [{ type = "emulator", size = "64B" }]
[[builder]]
count = 2
"""
    with Folder() as folder:
        with Run(folder.write("run.toml", config), cwd=folder.path) as run:
            result = run.finish()
    check_balanced(result)
    assert result["events"]["lost"] == 0, "lost events"
    assert result["events"]["incomplete"] == 0, "incomplete events"
    assert result["fragments"]["lost"] == 0, "lost fragments"
    for name, node in result["nodes"].items():  # one that comes after so short a run has not started
        assert node.get("starts", 1) <= 1, f"starts of {name}"


def test_files_that_are_removed_during_the_run_are_said_at_once_and_fail_it():
    with Folder() as folder:
        with Run(folder.small(builders=1), "--set", "network.url=inproc://") as run:
            run.wait_for_events(100)
            shutil.rmtree((folder.path / "out").rename(folder.path / "away"))
            for _ in ("the run file", "the manifest"):
                run.wait_for("error .* was removed, renamed, replaced or cut")
            run.signal()
            result = run.finish(status=1)
        check_balanced(result)
        assert "was removed" in result["error"] and len(result["gone_files"]) == 2, result
        assert f"FAILED: {result['error']}" in run.text() and "it was written again" in run.text(), run.text()
        checked = fanin("verify", result["manifest"])
        assert checked.returncode == 1 and "_0001.h5" in checked.stdout and "NOT GOOD" in checked.stdout, checked.stdout
        assert fanin("verify", result["files"][-1]).returncode == 0, "what came after is good"


def test_files_that_are_emptied_or_cut_during_the_run_are_said_at_once_and_fail_it():
    with Folder() as folder:
        with Run(folder.small(builders=1), "--set", "network.url=inproc://") as run:
            run.wait_for_events(100)
            [first] = folder.path.glob("out/*.h5")
            [manifest] = folder.path.glob("out/*.json")
            os.truncate(first, 0)
            os.truncate(manifest, manifest.stat().st_size // 2)
            for _ in ("the run file", "the manifest"):
                run.wait_for("error .* was removed, renamed, replaced or cut")
            run.signal()
            result = run.finish(status=1)
        check_balanced(result)
        assert set(result["gone_files"]) == {str(first), str(manifest)}, result
        checked = fanin("verify", result["manifest"])
        assert checked.returncode == 1 and f"{first}: " in checked.stdout, checked.stdout
        assert fanin("verify", result["files"][-1]).returncode == 0, "what came after is good"


def test_a_run_without_some_sources_has_nothing_of_them():
    with Folder() as folder:
        without = ["--without", "0x102", "--without", "0x103"]
        with Run(folder.small(), "--events", "500", *without, "--set", "run.without=0x101") as run:
            result = run.finish()
        check_balanced(result)
        assert list(result["sources"]) == ["0x100"] and sorted(result["nodes"]) == ["bu0", "bu1", "evm", "ru0"], result
        assert (result["events"]["built"], result["events"]["incomplete"], result["fragments"]["built"]) == (500, 0, 500), result
        assert verify(result)["complete"] == 500
        shown = fanin("inspect", result["files"][0])
        assert re.findall(r"^ +(0x[0-9a-f]+) ", shown.stdout, re.MULTILINE) == ["0x100"], shown.stdout
        refused = fanin("run", folder.path / "run.toml", *without, "--node", "ru1")
        assert refused.returncode == 2 and '"ru1" takes no part' in refused.stderr, refused.stderr


def test_a_run_file_says_what_the_run_was():
    extra = '\n[run.metadata]\nbeam = "150 GeV"\nhv = true\nshift = 3\n'
    with Folder() as folder:
        config = folder.small(builders=1)
        config.write_text(config.read_text() + extra)
        with Run(config, "--events", "100", "--set", "run.comment=before the repair", "--set", "run.metadata.shift=4",
                 "--set", "network.url=inproc://") as run:
            result = run.finish()
        assert result["comment"] == "before the repair", result
        assert result["metadata"] == {"beam": "150 GeV", "hv": True, "shift": 4}, result
        with h5py().File(result["files"][0]) as file:
            used = tomllib.loads(file["configuration"][0].decode())
            assert used["network"]["url"] == "inproc://" and used["run"]["metadata"]["shift"] == 4, used
            assert file.attrs["comment"].decode() == "before the repair", dict(file.attrs)
            keys = {key.removeprefix("metadata."): value for key, value in file.attrs.items() if key.startswith("metadata.")}
            assert keys == {"beam": b"150 GeV", "hv": True, "shift": 4}, keys
        shown = fanin("inspect", result["manifest"], "--json", "-")
        [of_file] = json.loads(shown.stdout)["files"]
        assert of_file["metadata"] == {"beam": "150 GeV", "hv": True, "shift": 4} and of_file["events"] == 100, of_file
        assert tomllib.loads(of_file["configuration"]) == used, of_file
        text = fanin("inspect", result["manifest"]).stdout
        assert "comment: before the repair" in text and 'beam = "150 GeV"' in text, text


def test_a_run_file_says_when_the_run_began_and_when_its_events_were():
    before = time.time_ns()
    with Folder() as folder:
        with Run(folder.small(builders=1), "--events", "300", "--set", "network.url=inproc://") as run:
            result = run.finish()
        with h5py().File(result["files"][0]) as file:
            began, times = int(file.attrs["started_unix_ns"]), file["events"]["time_unix_ns"]
        assert before <= began <= times[0] and (times[1:] >= times[:-1]).all(), (before, began, times)
        assert times[-1] - began <= 1e9 * result["duration_s"], result
        shown = fanin("inspect", result["manifest"]).stdout
        assert "their times: 20" in shown, shown
        rate = float(re.search(r"over the ([0-9.]+) s of the run", shown)[1])
        assert abs(rate - result["duration_s"]) < 0.2, shown


def test_which_of_two_limits_has_ended_the_run_is_said():
    with Folder() as folder:
        config = folder.small(builders=1)
        for events, by in (("50", "run.events"), ("1000000000", "run.duration")):
            with Run(config, "--events", events, "--set", "run.duration=500ms" if by == "run.duration" else "run.duration=1h",
                     "--set", "network.url=inproc://") as run:
                result = run.finish()
            assert result["ended_by"] == by, result
            said = f"ended by run.duration, before run.events = {events}"
            assert (said in run.text()) == (by == "run.duration"), run.text()
            assert f"manifest   {result['manifest']}: 1 run file" in run.text(), run.text()


def test_discarding_writes_nothing():
    with Folder() as folder:
        with Run(folder.small(), "--duration", "1s", "--set", "run.output=discard", cwd=folder.path) as run:
            result = run.finish()
        check_balanced(result)
        assert result["files"] == [], "files"
        assert sorted(p.name for p in folder.path.iterdir()) == ["run.toml"], "what is in the folder"


def test_a_folder_whose_name_is_not_utf_8_is_as_good_as_any():
    with Folder() as folder:
        output = os.fsencode(folder.path) + b"/run \xff"
        with Run(folder.small(), "--events", "100", "--set", b"run.output=" + output) as run:
            result = run.finish()
        check_balanced(result)
        assert result["events"]["built"] == 100, "events"
        assert {os.path.dirname(file) for file in result["files"]} == {f"{folder.path}/run \ufffd"}, "folder"
        files = [output + b"/" + name for name in os.listdir(output) if name.endswith(b".h5")]
        assert len(files) == len(result["files"]), "files"


RECEIVING = """
[run]
output = "discard"
[network]
url = "tcp://127.0.0.1"
[buffers]
readout = "16MiB"
builder = "48MiB"
huge_pages = "off"
[[readout]]
source = [{ id = 0x300, type = "receive", listen = "tcp://127.0.0.1", fragment_max = "32KiB" }]
[[builder]]
"""


def test_what_a_source_counts_is_in_the_result():
    with Folder() as folder:
        config = folder.write("run.toml", RECEIVING)
        with Run(config) as run:
            port = run.wait_for(r"waits for fragments at tcp://127.0.0.1:(\d+)")[1]
            with socket.create_connection(("127.0.0.1", int(port))) as stray:
                stray.sendall(b"GET / HTTP/1.1\r\n\r\n")
                run.wait_for("disconnected: bad_preface")
            run.signal()
            result = run.finish(status=None)
        assert result["sources"]["0x300"]["counters"] == {"connections": 1, "bad_preface": 1}, "counters"
        assert "bad_preface 1" in run.summary(), run.summary()


def test_memory_stays_within_the_pools_and_64_mib():
    # AddressSanitizer keeps what was freed, and its shadow.
    beside = 128 if "sanitize" in fanin("--version").stdout else 64
    with Folder() as folder:
        config = folder.small(rate="5kHz")
        with Run(config, "--duration", "3s") as run:
            result = run.finish()
        for name, pools in {"evm": 8, "ru0": 16 + 4 + 6, "bu0": 48 + 6}.items():
            peak = result["nodes"][name]["peak_rss_bytes"] / (1 << 20)
            assert peak < pools + beside, f"{name}: {peak:.0f} MiB, pools have {pools} MiB"


def test_check_prints_what_every_example_would_start():
    for example in sorted((SOURCE / "examples").glob("*.toml")):
        done = fanin("check", example)
        if "No such file" in done.stderr:  # recorded data that is not here
            continue
        assert done.returncode == 0, f"fanin check {example.name}: {done.stderr}"
        assert "total memory" in done.stdout, f"{example.name}: {done.stdout}"
        assert ", window " in done.stdout, f"{example.name}: {done.stdout}"  # of event numbers
