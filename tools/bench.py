#!/usr/bin/env python3
"""The recorded set of measurements (docs/benchmarks.md); ./dev bench runs it.

Usage: bench.py FANIN RESULTS [speed|latency|idle|memory|storage|sockets|ofi ...]
RESULTS is a folder for the JSON of each; a table of each goes to standard output. All of them where none is named: about
an hour, 2 GiB of disk. FANIN_BENCH_SECONDS is the length of one measurement of the sockets (1); with less the tables say
that they are no record. Rounds in which other machines took more than 5 % of the time are dropped; their number is said.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

MARGIN = 64 << 20  # bytes that a process may need beside its pools


def bench(name, *options):
    """Runs fanin bench; its result rows."""
    print(f"   fanin bench {' '.join(options)}", file=sys.stderr, flush=True)
    file = RESULTS / f"{name}.json"
    subprocess.run([FANIN, "bench", *options, "--json", str(file), "--quiet"], check=True, stdout=subprocess.DEVNULL)
    result = json.loads(file.read_text())
    dropped = sum(row["runs_dropped"] for row in result["results"])
    if dropped:
        print(f"   {dropped} rounds were dropped: their time was stolen", file=sys.stderr, flush=True)
    return result["results"]


def evb(name, *options):
    return {row["what"]: row for row in bench(name, "evb", *options)}


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


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def short_rate(row):
    if row is None:
        return "-"
    return (f"{row['messages_per_s'] / 1e6:.3g} M/s" if row["size_bytes"] < 4096
            else f"{row['bytes_per_s'] / 1e9:.3g} GB/s")


def times(row):
    return "-" if row is None else " / ".join(f"{row[key]:.3g}" for key in ("p50_us", "p99_us", "p999_us"))


def ratio(row, to):
    key = f"ratio_to_{to}"
    if row is None or row.get(key) is None:
        return "-"
    return f"{row[key]:.2f} ({row[key + '_min']:.2f} to {row[key + '_max']:.2f})"


def by_size(rows):
    """Per size, the rows by contender."""
    sizes = {}
    for row in rows:
        sizes.setdefault(row["size_bytes"], {})[row["what"]] = row
    return sizes


SECONDS = os.environ.get("FANIN_BENCH_SECONDS", "1")
SHORT = ("--duration", f"{SECONDS}s", "--runs", "5" if float(SECONDS) >= 1 else "1")


def sockets():
    """The message sockets beside bare loops, ZeroMQ and MPI: two processes on two cores."""
    for url, more in (("tcp", ()), ("shm", ("--read",))):
        # Each size beside its peers, and a drawing of it.
        rows = [(f"stream, {url}", "raw", "memcpy", "ZeroMQ", "MPI", "fanin", "of raw (min to max)",
                 "of ZeroMQ (min to max)")]
        found = bench(f"stream-{url}", "stream", "--url", url, "--sizes", "8B..64MiB", *more, *SHORT,
                      "--plot", str(RESULTS / f"stream-{url}.svg"))
        for size, row in by_size(found).items():
            own = row["fanin"]
            rows.append((size_text(size), *(short_rate(row.get(what)) for what in ("raw", "memcpy", "zeromq", "mpi", "fanin")),
                         ratio(own, "raw"), ratio(own, "zeromq")))
        table(*rows)
    rows = [("round trip of 64 B, us", "raw", "ZeroMQ", "MPI", "fanin", "of raw, p50", "beside a stream", "of its p99 alone",
             "the stream")]
    for what, *options in (("tcp, polling", "--url", "tcp", "--under-load"),
                           ("tcp, blocking", "--url", "tcp", "--wait", "block", "--under-load"),
                           ("shm, polling", "--url", "shm", "--under-load"),
                           ("shm, blocking", "--url", "shm", "--wait", "block", "--under-load"),
                           ("tcp, blocking, at 10 kHz", "--url", "tcp", "--wait", "block", "--rate", "10kHz"),
                           ("tcp, 32 under way", "--url", "tcp", "--pipeline", "32")):
        name = "roundtrip-" + what.replace(",", "").replace(" ", "-")
        row = by_size(bench(name, "roundtrip", "--size", "64B", *options, *SHORT))[64]
        loaded = row.get("fanin-loaded")
        rows.append((what, *(times(row.get(peer)) for peer in ("raw", "zeromq", "mpi", "fanin")), ratio(row["fanin"], "raw"),
                     times(loaded), ratio(loaded, "unloaded"),
                     "-" if loaded is None else f"{loaded['load_bytes_per_s'] / 1e9:.2f} GB/s"))
    table(*rows)
    rows = [("1 publisher, 4 subscribers, in sum", "raw", "ZeroMQ", "fanin", "point to point", "of that (min to max)")]
    for url in ("tcp", "shm"):
        found = bench(f"pubsub-{url}", "pubsub", "--url", url, "--sizes", "64B,1KiB,16KiB,256KiB", *SHORT)
        for size, row in by_size(found).items():
            rows.append((f"{url}, {size_text(size)}",
                         *(short_rate(row.get(what)) for what in ("raw", "zeromq", "fanin", "point-to-point")),
                         ratio(row["fanin"], "point_to_point")))
    table(*rows)
    rows = [("event building", "nxn", "evb", "of nxn (min to max)")]
    for url in ("tcp", "shm"):
        for units, size in ((1, "16KiB"), (1, "256KiB"), (2, "200B")):
            found = evb(f"evb-{url}-{units}-{size}", "--url", url, "--rus", str(units), "--bus", str(units),
                        "--fragment-size", size, *SHORT)
            rows.append((f"{url}, {units} x {units}, {size}", rate(found["nxn"]), rate(found["evb"]),
                         ratio(found["evb"], "nxn")))
    table(*rows)


def ofi():
    """The message sockets over libfabric's TCP beside raw libfabric on the same provider."""
    stream = by_size(bench("stream-ofi-tcp", "stream", "--url", "ofi+tcp", "--sizes", "64B..4MiB", "--peers", "raw", *SHORT))
    trips = by_size(bench("roundtrip-ofi-tcp", "roundtrip", "--url", "ofi+tcp", "--sizes", "64B..1MiB", "--peers", "raw",
                          *SHORT))
    rows = [("ofi+tcp", "stream, raw", "fanin", "of raw (min to max)", "round trip, raw, us", "fanin",
             "p50 of raw (min to max)")]
    for size, row in stream.items():
        trip = trips.get(size, {})
        rows.append((size_text(size), short_rate(row.get("raw")), short_rate(row["fanin"]), ratio(row["fanin"], "raw"),
                     times(trip.get("raw")), times(trip.get("fanin")), ratio(trip.get("fanin"), "raw")))
    table(*rows)


def latency():
    """From trigger to commit as a run has it: files, the default configuration, processes that wait in the kernel."""
    rows = [("2 x 2, 200 B, trigger rate", "p50", "p99", "p99.9", "cores used")]
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        for trigger in ("100Hz", "10kHz", "100kHz"):
            own = evb(f"latency-{trigger}", "--rus", "2", "--bus", "2", "--fragment-size", "200B", "--rate", trigger,
                      "--wait", "block", "--storage", folder, "--runs", "5", "--duration", "5s")["evb"]
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
    sets = {"speed": speed, "latency": latency, "idle": idle, "memory": memory, "storage": storage,
            "sockets": sockets, "ofi": ofi}
    if float(SECONDS) < 1:
        print("Measurements of less than 1 s: a check, no record.\n")
    for wanted in sys.argv[3:] or sets:
        if wanted not in sets:
            sys.exit(f"no measurement '{wanted}': {', '.join(sets)}")
        sets[wanted]()
