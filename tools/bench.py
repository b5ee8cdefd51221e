#!/usr/bin/env python3
"""The recorded set of measurements (docs/benchmarks.md); ./dev bench runs it.

Usage: bench.py FANIN RESULTS [speed|latency|idle|memory|storage ...]
RESULTS is a folder for the JSON of each; a table of each goes to standard output. All of them where none is named: about
fifteen minutes, 2 GiB of disk.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

MARGIN = 64 << 20  # bytes that a process may need beside its pools


def evb(name, *options):
    """Runs fanin bench evb; its result rows by name."""
    print(f"   fanin bench evb {' '.join(options)}", file=sys.stderr, flush=True)
    file = RESULTS / f"{name}.json"
    subprocess.run([FANIN, "bench", "evb", *options, "--json", str(file), "--quiet"], check=True,
                   stdout=subprocess.DEVNULL)
    result = json.loads(file.read_text())
    return {row["what"]: row for row in result["results"]}


def table(*rows):
    for number, row in enumerate(rows):
        print("| " + " | ".join(row) + " |")
        if number == 0:
            print("|" + "---|" * len(row))
    print(flush=True)


def rate(row):
    return f"{row['messages_per_s'] / 1e6:.2f} M/s, {row['bytes_per_s'] / 1e9:.2f} GB/s"


def speed():
    rows = [("fragments", "raw", "fair", "fanin", "of fair (min to max)")]
    for units, size in ((1, "16KiB"), (1, "64KiB"), (1, "256KiB"), (1, "1MiB"), (2, "200B")):
        found = evb(f"speed-{units}x{units}-{size}", "--rus", str(units), "--bus", str(units), "--fragment-size", size,
                    "--runs", "7", "--duration", "1s")
        own = found["evb"]
        rows.append((f"{units} x {units}, {size}", rate(found["raw"]), rate(found["fair"]), rate(own),
                     f"{own['ratio_to_fair']:.2f} ({own['ratio_to_fair_min']:.2f} to {own['ratio_to_fair_max']:.2f})"))
    table(*rows)


def latency():
    rows = [("2 x 2, 200 B, trigger rate", "p50", "p99", "p99.9", "cores used")]
    for trigger in ("100Hz", "10kHz", "100kHz"):
        own = evb(f"latency-{trigger}", "--rus", "2", "--bus", "2", "--fragment-size", "200B", "--rate", trigger,
                  "--runs", "5", "--duration", "5s")["evb"]
        cores = sum(process["cpu"] for process in own["processes"])
        rows.append((trigger, *(f"{own[key]:.0f} us" for key in ("p50_us", "p99_us", "p999_us")), f"{cores:.2f}"))
    table(*rows)


def idle():
    own = evb("idle", "--rus", "2", "--bus", "2", "--idle", "--runs", "3", "--duration", "5s")["evb"]
    table(("idle process", "of a core", "wake-ups/s"),
          *((p["name"], f"{p['cpu'] * 100:.2f} %", f"{p['waits_per_s']:.0f}") for p in own["processes"]))


def memory():
    """Five minutes of the quickstart without storage: the peak of each process beside its pools."""
    duration = os.environ.get("FANIN_BENCH_MEMORY", "5min")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.json"
        command = [FANIN, "run", "examples/quickstart.toml", "--set", "run.output=discard", "--duration", duration]
        print(f"   {' '.join(command)}", file=sys.stderr, flush=True)
        subprocess.run([*command, "--quiet", "--json", str(file)], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        (RESULTS / "memory.json").write_text(file.read_text())
        nodes = json.loads(file.read_text())["nodes"]
    rows = [(f"process, after {duration}", "pools", "peak", "beside the pools")]
    for name, node in nodes.items():
        beside = node["peak_rss_bytes"] - node["pool_bytes"]
        assert beside <= MARGIN, f"{name}: {beside >> 20} MiB beside its pools"
        rows.append((name, *(f"{count / 2**20:.0f} MiB" for count in (node["pool_bytes"], node["peak_rss_bytes"], beside))))
    table(*rows)


def storage():
    program = Path(FANIN).parent.parent / "bench" / "fanin_storage_microbench"
    file = RESULTS / "storage.json"
    print(f"   {program.name}: 2 GiB a run, beside dd", file=sys.stderr, flush=True)
    subprocess.run([program, "--benchmark_enable_random_interleaving=true", "--benchmark_report_aggregates_only=true",
                    f"--benchmark_out={file}"], check=True, stdout=subprocess.DEVNULL)
    medians = {entry["run_name"].split("/iterations")[0]: entry["real_time"]
               for entry in json.loads(file.read_text())["benchmarks"] if entry.get("aggregate_name") == "median"}
    rows = [("2 GiB, median", "time", "of dd")]
    for mode in ("written", "synced"):
        dd = medians[f"dd/{mode}"]
        rows.append((f"dd, {mode}", f"{dd:.0f} ms", ""))
        for size in (200, 16384):
            own = medians[f"sink/{mode}/{size}"]
            rows.append((f"fanin, {mode}, fragments of {size} B", f"{own:.0f} ms", f"{dd / own:.2f}"))
    table(*rows)


if __name__ == "__main__":
    FANIN, RESULTS = sys.argv[1], Path(sys.argv[2])
    RESULTS.mkdir(parents=True, exist_ok=True)
    sets = {"speed": speed, "latency": latency, "idle": idle, "memory": memory, "storage": storage}
    for wanted in sys.argv[3:] or sets:
        if wanted not in sets:
            sys.exit(f"no measurement '{wanted}': {', '.join(sets)}")
        sets[wanted]()
