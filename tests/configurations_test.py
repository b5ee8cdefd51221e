"""The arrangements of examples/: each is run as it is, smaller; its files are verified and its ledger balances."""

import re
import time
from pathlib import Path

from support.fanin_run import FANIN, SOURCE, Folder, Run, check_balanced, fanin, verify

RUNS_ALONE = True  # one of them counts wake-ups
EXAMPLES = SOURCE / "examples"
SMALL = ("--set", "buffers.huge_pages=off")


def run_example(name, folder, *more):
    with Run(EXAMPLES / name / f"{name}.toml", "--set", f"run.output={folder.path / 'out'}", *SMALL, *more) as run:
        return run.finish()


def check_files(result, events):
    check_balanced(result)
    counts = result["events"]
    assert (counts["built"], counts["incomplete"], counts["lost"], counts["bad"]) == (events, 0, 0, 0), counts
    found = verify(result)
    assert (found["events"], found["complete"]) == (events, events), found


def test_each_arrangement_has_a_page_and_what_it_would_start_is_printed():
    for folder in (EXAMPLES / name for name in ("baseline", "folded", "timeslice", "trapezoidal")):
        page = (folder / "README.md").read_text()
        done = fanin("check", folder / f"{folder.name}.toml")
        assert done.returncode == 0, done.stderr
        assert "total memory" in done.stdout, folder
        for file in folder.glob("*.toml"):
            assert f"fanin run examples/{folder.name}/{file.name}" in page, file


def test_baseline():
    with Folder() as folder:
        result = run_example("baseline", folder, "--events", 2000, "--set", "buffers.readout=16MiB", "--set", "buffers.builder=48MiB")
        check_files(result, 2000)
        assert len({node["process"] for node in result["nodes"].values()}) == 9, "a process for each node"


def test_folded():
    with Folder() as folder:
        result = run_example("folded", folder, "--events", 2000, "--set", "buffers.readout=16MiB", "--set", "buffers.builder=48MiB")
        check_files(result, 2000)
        for i in range(4):
            assert result["nodes"][f"ru{i}"]["process"] == result["nodes"][f"bu{i}"]["process"], "one process"
            assert result["nodes"][f"ru{i}"]["bytes"] > 0, "it sends"
            assert result["nodes"][f"bu{i}"]["bytes"] > 0, "and receives"


def test_a_folded_process_that_dies_comes_back_as_both():
    with Folder() as folder:
        with Run(EXAMPLES / "folded/folded.toml", "--set", f"run.output={folder.path / 'out'}", *SMALL, "--set", "run.restart=true",
                 "--set", "buffers.readout=16MiB", "--set", "buffers.builder=48MiB", "--set", "trigger.rate=1kHz", "--duration",
                 "1h") as run:
            run.wait_for_events(500)
            run.kill("ru1")
            run.wait_for("readout unit 'ru1' has joined")
            run.wait_for_events(1000)
            run.signal()
            result = run.finish()
        check_balanced(result)
        assert result["nodes"]["ru1"]["starts"] == 2, "starts"
        assert result["nodes"]["bu1"]["starts"] == 2, "starts"
        assert verify(result)["events"] == result["events"]["built"], "verify"


def test_time_slices():
    with Folder() as folder:
        result = run_example("timeslice", folder, "--events", 8)
        check_files(result, 8)
        assert result["bytes_built"] == 8 * (32 << 20), "a slice is what all sources have measured in its time"


def test_trapezoidal():
    with Folder() as folder:
        result = run_example("trapezoidal", folder, "--events", 3000)
        check_files(result, 3000)
        assert len({node["process"] for node in result["nodes"].values()}) == 6, "processes"
        builders = [node for name, node in result["nodes"].items() if name.startswith("bu")]
        assert len(builders) == 240, "builder units"


def check_filtered(arrangement, *more):
    """The arrangement with filter units that accept what has a high sample, and one event in 100."""
    plugin = next(Path(FANIN).resolve().parent.parent.rglob("libfanin_test_threshold_filter.so"))
    text = (EXAMPLES / arrangement / "filter.toml").read_text()
    assert "../plugin-filter/build/threshold_filter.so" in text, "as the page of the filter builds it"
    with Folder() as folder:
        config = folder.write("filter.toml", text.replace("../plugin-filter/build/threshold_filter.so", str(plugin)))
        with Run(config, "--set", f"run.output={folder.path / 'out'}", *SMALL, "--events", 2000, *more) as run:
            result = run.finish()
        check_files(result, 2000)
        assert 200 < result["events"]["rejected"] < 1800 and result["events"]["undecided"] == 0, result["events"]
        return result


def test_baseline_with_filter_units_apart():
    result = check_filtered("baseline", "--set", "buffers.readout=16MiB", "--set", "buffers.builder=48MiB")
    assert len({node["process"] for node in result["nodes"].values()}) == 13, "a process for each node"


def test_trapezoidal_with_filter_units_beside_the_builder_units():
    result = check_filtered("trapezoidal")
    assert len({node["process"] for node in result["nodes"].values()}) == 10, "processes"


def wake_ups(pids):
    """Of all threads of these processes."""
    total = 0
    for pid in pids:
        for status in Path(f"/proc/{pid}/task").glob("*/status"):
            total += int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", status.read_text())[1])
    return total


def test_idle_nodes_of_a_trapezoid_rarely_wake_up():
    with Folder() as folder:
        with Run(EXAMPLES / "trapezoidal/trapezoidal.toml", "--set", "run.output=discard", *SMALL, "--set", "trigger.rate=0.001Hz",
                 "--duration", "1h") as run:
            pids = [run.process.pid, *(run.pid(name) for name in ("evm", "ru0", "bu0", "bu60", "bu120", "bu180"))]
            run.wait_for("run 1 begins")
            for _ in range(3):  # until all are connected
                run.wait_for(r" \d+ events ")
            rates = []
            for _ in range(5):
                before, start = wake_ups(pids), time.monotonic()
                run.wait_for(r" \d+ events ")
                rates.append((wake_ups(pids) - before) / (time.monotonic() - start))
            run.signal()
            run.finish()
        # The rate falls during a run: nodes of a process that once woke up together go on together.
        assert min(rates) <= 400, f"{min(rates):.0f} wake-ups a second of 256 idle nodes"
