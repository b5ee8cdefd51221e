"""The tools around fanin bench: what they make of results, without measuring."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import bench_against
from bench import SETS, replace_between_marks

ROOT = Path(os.environ["FANIN_SOURCE_DIR"])

MACHINE = {"processor": "Some CPU", "cores": 2, "cache_l2": "1M", "cache_l3": "32M", "kernel": "6.1.0-1", "build": "GNU 12",
           "commit": "0123456789ab"}


def result(folder, name, rows):
    defaults = {"runs": 5, "runs_dropped": 0, "stolen_max": 0.01}
    (Path(folder) / f"{name}.json").write_text(json.dumps(
        {"machine": MACHINE, "settings": {"congestion": "cubic"}, "results": [{**defaults, **row} for row in rows]}))


def record(folder, document):
    # in the order of ./dev bench
    return subprocess.run([sys.executable, ROOT / "tools/bench.py", "fanin", folder, "--record", document, "idle", "--again"],
                          capture_output=True, text=True)


def test_a_recorded_table_replaces_the_one_before_and_nothing_else():
    with tempfile.TemporaryDirectory() as folder:
        result(folder, "idle", [{"what": "evb", "runs_dropped": 3,
                                 "processes": [{"name": "evm", "cpu": 0.0005, "waits_per_s": 24}]}])
        document = Path(folder) / "record.md"
        document.write_text("before\n<!-- bench idle -->\nold\n<!-- end of bench idle -->\nafter\n")
        for _ in range(2):
            done = record(folder, document)
            assert done.returncode == 0, done.stderr
        text = document.read_text()
        assert text.startswith("before\n<!-- bench idle -->\n20"), text
        assert text.endswith("| evm | 0.05 % | 24 |\n<!-- end of bench idle -->\nafter\n"), text
        assert "old" not in text and text.count("Some CPU") == 1, text
        assert "3 of 8 measurements were dropped" in text and "cubic" in text and "0123456789ab" in text, text


def test_a_document_without_the_marks_is_refused():
    for document in ("", "<!-- bench idle -->\n", "<!-- end of bench idle -->\n<!-- bench idle -->\n"):
        try:
            replace_between_marks(document, "idle", "")
        except ValueError as error:
            assert "<!-- end of bench idle -->" in str(error), error
        else:
            assert False, f"{document!r} was taken"


def test_each_set_has_its_place_in_the_document():
    text = (ROOT / "docs/benchmarks.md").read_text()
    for name in SETS:
        replace_between_marks(text, name, "")


def test_the_interval_of_a_median_needs_six_values_and_narrows():
    assert bench_against.interval_of_median([1, 2, 3, 4, 5]) is None, "five"
    assert bench_against.interval_of_median([6, 2, 3, 4, 5, 1]) == (1, 6), "six"
    assert bench_against.interval_of_median(range(1, 21)) == (6, 15), "twenty"
    assert bench_against.median([4, 1, 2, 3]) == 2.5, "median"


def test_a_slower_build_is_named_and_a_wide_interval_says_nothing():
    assert bench_against.verdict([1.0, 1.01, 0.99, 1.0, 1.0, 1.02], 0.05) is True, "alike"
    assert bench_against.verdict([0.90, 0.91, 0.89, 0.90, 0.90, 0.92], 0.05) is False, "slower"
    assert bench_against.verdict([1.2, 1.21, 1.19, 1.2, 1.2, 1.22], 0.05) is True, "faster"
    assert bench_against.verdict([0.5, 1.5, 1.0, 0.7, 1.3, 1.0], 0.05) is None, "noise"
