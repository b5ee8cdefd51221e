"""fanin bench evb, briefly: that it measures, not how fast this machine is."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from fanin_run import FANIN, main  # noqa: E402


def bench(*options):
    done = subprocess.run([FANIN, "bench", "evb", "--duration", "200ms", "--runs", "1", "--quiet", "--json", "-", *options],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return {row["what"]: row for row in json.loads(done.stdout)["results"]}


def test_the_bare_loops_are_measured_beside_it():
    rows = bench("--rus", "2", "--bus", "2", "--fragment-size", "200B")
    assert set(rows) >= {"raw", "fair", "evb"}, rows.keys()
    for row in rows.values():
        assert row["messages_per_s"] > 0 and row["bytes_per_s"] > 0, row
    assert rows["evb"]["ratio_to_fair"] > 0


def test_a_trigger_gives_latencies():
    own = bench("--rus", "1", "--bus", "1", "--fragment-size", "200B", "--rate", "1kHz")["evb"]
    assert 0 < own["p50_us"] <= own["p99_us"] <= own["p999_us"], own


def test_idle_processes_are_counted():
    own = bench("--rus", "1", "--bus", "1", "--idle")["evb"]
    assert {process["name"] for process in own["processes"]} >= {"evm", "ru0", "bu0"}, own


if __name__ == "__main__":
    main()
