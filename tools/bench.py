#!/usr/bin/env python3
"""The recorded set of measurements; ./dev bench runs it.

RESULTS is a folder for the JSON of each. The tables go to standard output and, with --record, into the document, where
they replace what stands between `<!-- bench SET -->` and `<!-- end of bench SET -->`. All sets where none is named: about
an hour, 2 GiB of disk. FANIN_BENCH_SECONDS is the length of one measurement of the sockets (1); shorter ones are not
recorded. Rounds in which other machines took more than 5 % of the time are dropped; their number is said.
"""

import argparse
import contextlib
import datetime
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine

STOLEN_MAX = 0.05  # of the time, by other machines
MARGIN = 64 << 20  # bytes that a process may need beside its pools


class Measurements:
    """One set of measurements: runs the commands, and gathers the tables and the conditions."""

    def __init__(self, fanin, results, again):
        self.fanin, self.results, self.again = fanin, results, again
        self.lines = []
        self.machines = {}  # by commit
        self.congestion = set()
        self.dates = set()
        self.dropped = self.kept = 0
        self.stolen_max = 0.0

    def run(self, file, command):
        """Runs what writes the file; with --again the file of an earlier run is taken."""
        if not self.again:
            print(f"   {' '.join(map(str, command))}", file=sys.stderr, flush=True)
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return json.loads(file.read_text())

    def bench(self, name, *options):
        """The result rows of fanin bench."""
        file = self.results / f"{name}.json"
        result = self.run(file, [self.fanin, "bench", *options, "--json", file, "--quiet"])
        rows = result["results"]
        self.add_conditions(file, result["machine"], result["settings"].get("congestion", ""))
        self.dropped += sum(row["runs_dropped"] for row in rows)
        self.kept += sum(row["runs"] for row in rows)
        self.stolen_max = max([self.stolen_max, *(row["stolen_max"] for row in rows)])
        return rows

    def add_conditions(self, file, described, congestion):
        self.machines[described["commit"]] = described
        self.congestion.add(congestion)
        self.dates.add(datetime.date.fromtimestamp(file.stat().st_mtime).isoformat())

    def evb(self, name, *options):
        """The same of fanin bench evb, by contender."""
        return {row["what"]: row for row in self.bench(name, "evb", *options)}

    def table(self, *rows):
        for number, row in enumerate(rows):
            self.lines.append("| " + " | ".join(row) + " |")
            if number == 0:
                self.lines.append("|" + "---|" * len(row))
        self.lines.append("")

    def conditions(self):
        congestion = ", ".join(sorted(self.congestion - {""}))
        return (f"{', '.join(sorted(self.dates))}, commit {', '.join(sorted(self.machines))}: "
                f"{machine.text(next(iter(self.machines.values())))}; congestion control {congestion or 'none'}. "
                f"Other machines took at most {self.stolen_max * 100:.1f} % of a round; {self.dropped} of "
                f"{self.kept + self.dropped} measurements were dropped for that.")

    def text(self):
        conditions = [self.conditions(), ""] if self.machines else []
        return "\n".join(conditions + self.lines).rstrip() + "\n"


def rate(row):
    return f"{row['messages_per_s'] / 1e6:.3g} M/s, {row['bytes_per_s'] / 1e9:.2f} GB/s"


def speed(m):
    """As fast as possible, in processes that wait in the kernel, as those of a run do."""
    rows = [("fragments", "raw", "fair", "fanin", "of fair (min to max)")]
    for units, size in ((1, "16KiB"), (1, "64KiB"), (1, "256KiB"), (1, "1MiB"), (2, "200B")):
        found = m.evb(f"speed-{units}x{units}-{size}", "--rus", str(units), "--bus", str(units), "--fragment-size", size,
                      "--wait", "block", "--runs", "7", "--duration", "1s")
        own = found["evb"]
        rows.append((f"{units} x {units}, {size}", rate(found["raw"]), rate(found["fair"]), rate(own),
                     f"{own['ratio_to_fair']:.2f} ({own['ratio_to_fair_min']:.2f} to {own['ratio_to_fair_max']:.2f})"))
    m.table(*rows)


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


def sockets(m):
    """The message sockets beside bare loops, ZeroMQ and MPI: two processes on two cores."""
    for url, more in (("tcp", ()), ("shm", ("--read",))):
        # Each size beside its peers, and a drawing of it.
        rows = [(f"stream, {url}", "raw", "memcpy", "ZeroMQ", "MPI", "fanin", "of raw (min to max)",
                 "of ZeroMQ (min to max)")]
        found = m.bench(f"stream-{url}", "stream", "--url", url, "--sizes", "8B..64MiB", *more, *SHORT,
                        "--plot", str(m.results / f"stream-{url}.svg"))
        for size, row in by_size(found).items():
            own = row["fanin"]
            rows.append((size_text(size), *(short_rate(row.get(what)) for what in ("raw", "memcpy", "zeromq", "mpi", "fanin")),
                         ratio(own, "raw"), ratio(own, "zeromq")))
        m.table(*rows)
    rows = [("round trip of 64 B, us", "raw", "ZeroMQ", "MPI", "fanin", "of raw, p50", "beside a stream", "of its p99 alone",
             "the stream")]
    for what, *options in (("tcp, polling", "--url", "tcp", "--under-load"),
                           ("tcp, blocking", "--url", "tcp", "--wait", "block", "--under-load"),
                           ("shm, polling", "--url", "shm", "--under-load"),
                           ("shm, blocking", "--url", "shm", "--wait", "block", "--under-load"),
                           ("tcp, blocking, at 10 kHz", "--url", "tcp", "--wait", "block", "--rate", "10kHz"),
                           ("tcp, 32 under way", "--url", "tcp", "--pipeline", "32")):
        name = "roundtrip-" + what.replace(",", "").replace(" ", "-")
        row = by_size(m.bench(name, "roundtrip", "--size", "64B", *options, *SHORT))[64]
        loaded = row.get("fanin-loaded")
        rows.append((what, *(times(row.get(peer)) for peer in ("raw", "zeromq", "mpi", "fanin")), ratio(row["fanin"], "raw"),
                     times(loaded), ratio(loaded, "unloaded"),
                     "-" if loaded is None else f"{loaded['load_bytes_per_s'] / 1e9:.2f} GB/s"))
    m.table(*rows)
    rows = [("1 publisher, 4 subscribers, in sum", "raw", "ZeroMQ", "fanin", "point to point", "of that (min to max)")]
    for url in ("tcp", "shm"):
        found = m.bench(f"pubsub-{url}", "pubsub", "--url", url, "--sizes", "64B,1KiB,16KiB,256KiB", *SHORT)
        for size, row in by_size(found).items():
            rows.append((f"{url}, {size_text(size)}",
                         *(short_rate(row.get(what)) for what in ("raw", "zeromq", "fanin", "point-to-point")),
                         ratio(row["fanin"], "point_to_point")))
    m.table(*rows)
    rows = [("event building", "nxn", "evb", "of nxn (min to max)")]
    for url in ("tcp", "shm"):
        for units, size in ((1, "16KiB"), (1, "256KiB"), (2, "200B")):
            found = m.evb(f"evb-{url}-{units}-{size}", "--url", url, "--rus", str(units), "--bus", str(units),
                          "--fragment-size", size, *SHORT)
            rows.append((f"{url}, {units} x {units}, {size}", rate(found["nxn"]), rate(found["evb"]),
                         ratio(found["evb"], "nxn")))
    m.table(*rows)


def ofi(m):
    """The message sockets over libfabric's TCP beside raw libfabric on the same provider."""
    stream = by_size(m.bench("stream-ofi-tcp", "stream", "--url", "ofi+tcp", "--sizes", "64B..4MiB", "--peers", "raw", *SHORT))
    trips = by_size(m.bench("roundtrip-ofi-tcp", "roundtrip", "--url", "ofi+tcp", "--sizes", "64B..1MiB", "--peers", "raw",
                            *SHORT))
    rows = [("ofi+tcp", "stream, raw", "fanin", "of raw (min to max)", "round trip, raw, us", "fanin",
             "p50 of raw (min to max)")]
    for size, row in stream.items():
        trip = trips.get(size, {})
        rows.append((size_text(size), short_rate(row.get("raw")), short_rate(row["fanin"]), ratio(row["fanin"], "raw"),
                     times(trip.get("raw")), times(trip.get("fanin")), ratio(trip.get("fanin"), "raw")))
    m.table(*rows)


def latency(m):
    """From trigger to commit as a run has it: files, processes that wait in the kernel; with the default configuration, and
    as fast as possible."""
    rows = [("2 x 2, 200 B, trigger rate", "event.latency", "p50", "p99", "p99.9", "cores used")]
    with tempfile.TemporaryDirectory(dir=m.results) as folder:
        for trigger in ("100Hz", "10kHz", "100kHz"):
            for budget, *options in (("50ms (default)",), ("0", "--latency", "0")):
                own = m.evb(f"latency-{trigger}-{budget.split()[0]}", "--rus", "2", "--bus", "2", "--fragment-size", "200B", "--rate",
                            trigger, *options, "--wait", "block", "--storage", folder, "--runs", "5", "--duration", "5s")["evb"]
                cores = sum(process["cpu"] for process in own["processes"])
                rows.append((trigger, budget, *(f"{own[key]:.0f} us" for key in ("p50_us", "p99_us", "p999_us")),
                             f"{cores:.2f}"))
    m.table(*rows)


def laboratory(m):
    """What the rates of laboratories cost: a latency budget is spent on fewer messages and wake-ups."""
    rows = [("2 x 2, 200 B, files written", "latency budget", "cores used", "wanted", "wake-ups/s", "p99")]
    with tempfile.TemporaryDirectory(dir=m.results) as folder:
        for trigger, budget, wanted in (("1kHz", "50ms", 0.05), ("10kHz", "50ms", 0.15), ("20kHz", "50ms", 0.35),
                                        ("100kHz", "50ms", 0.5), ("1kHz", "10ms", 0.15)):
            own = m.evb(f"laboratory-{trigger}-{budget}", "--rus", "2", "--bus", "2", "--sources", "2", "--fragment-size",
                        "200B", "--rate", trigger, "--latency", budget, "--wait", "block", "--storage", folder,
                        "--runs", "5", "--duration", "5s")["evb"]
            cores = sum(process["cpu"] for process in own["processes"])
            wake_ups = sum(process["waits_per_s"] for process in own["processes"])
            rows.append((trigger, budget, f"{cores:.3f}", f"{wanted:.2f}", f"{wake_ups:.0f}",
                         f"{own['p99_us'] / 1000:.1f} ms"))
    m.table(*rows)


FILTERED = """
[run]
output = "{output}"

[network]
url = "{url}"

[trigger]
rate = "10kHz"

[source]
type = "emulator"
size_mean = "200B"

[[readout]]
count = 2
source = [{{ id = 0x100, count = 2 }}]

[[builder]]
count = 2
"""
FILTERS = """
[[plugin]]
path = "{plugin}"

[[filter]]
type = "test_filter"
every = 1 # accepts all
into = "physics"

[[stream]]
name = "physics"
"""


def used_by(parent):
    """What a process and its children have used: seconds of processor, and waits of all threads."""
    ticks = waits = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            pid, _, rest = stat.read_text().rpartition(")")
            fields = rest.split()
            if parent in (int(fields[1]), int(pid.split()[0])):
                ticks += int(fields[11]) + int(fields[12])
                waits += sum(int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", status.read_text())[1])
                             for status in stat.parent.glob("task/*/status"))
    return ticks / os.sysconf("SC_CLK_TCK"), waits


def watch_run(m, name, text):
    """Ten seconds of a run, all processes together, and the result of the run. What its start costs depends on the host's free
    memory, so it comes before. Up to three times, until other machines take no more than 5 % of the time."""
    file = m.results / f"{name}.json"
    if not m.again:
        for _ in range(3):
            watched = watch_once(m, name, text)
            file.write_text(json.dumps(watched))
            if watched["stolen"] <= STOLEN_MAX:
                break
            m.dropped += 1
    watched = json.loads(file.read_text())
    m.add_conditions(file, watched["machine"], watched["congestion"])
    m.kept += 1
    m.stolen_max = max(m.stolen_max, watched["stolen"])
    return watched


def watch_once(m, name, text):
    config, result = m.results / f"{name}.toml", m.results / f"{name}.result.json"
    config.write_text(text)
    command = [m.fanin, "run", config, "--quiet", "--json", result]
    print(f"   {' '.join(map(str, command))}", file=sys.stderr, flush=True)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        time.sleep(5)  # until all are connected
        begun, (used, waits), (_, taken, ticks) = time.monotonic(), used_by(run.pid), machine.ticks()
        time.sleep(10)
        seconds, (used_then, waits_then) = time.monotonic() - begun, used_by(run.pid)
        _, taken_then, ticks_then = machine.ticks()
        run.terminate()
    if run.returncode != 0:
        raise RuntimeError(f"{config}: exit status {run.returncode}")
    shutil.rmtree(m.results / "data", ignore_errors=True)
    return {"cores": (used_then - used) / seconds, "waits_per_s": (waits_then - waits) / seconds,
            "stolen": (taken_then - taken) / (ticks_then - ticks), "machine": machine.describe(m.fanin),
            "congestion": machine.congestion_control(), "nodes": json.loads(result.read_text())["nodes"]}


def filter_cost(m):
    """What a filter unit costs that accepts everything: runs with and without one, in turns."""
    plugin = next(Path(m.fanin).resolve().parent.parent.rglob("libfanin_test_plugin_filter.so"))
    rows = [("10 kHz, 2 x 2, 200 B, files written", "cores used, no filter", "with one", "more (min to max)")]
    for url in ("shm", "tcp://127.0.0.1"):
        keys = {"url": url, "plugin": plugin, "output": m.results.absolute() / "data"}
        pairs = [tuple(watch_run(m, f"filter-{url[:3]}-{turn}-{name}", text.format(**keys))["cores"]
                       for name, text in (("without", FILTERED), ("with", FILTERED + FILTERS))) for turn in range(5)]
        more = [with_it - without for without, with_it in pairs]
        rows.append((url[:3], *(f"{statistics.median(values):.3f}" for values in zip(*pairs)),
                     f"{statistics.median(more):.3f} ({min(more):.3f} to {max(more):.3f})"))
    m.table(*rows)


def connections(m):
    """What the connections of many idle nodes cost: the trapezoidal example without events, with ever more builder units."""
    example = (Path(__file__).resolve().parent.parent / "examples/trapezoidal/trapezoidal.toml").read_text().partition("[[process]]")[0]
    rows = [("16 readout units, no events; builder units", "connections", "of a core, all processes", "wake-ups/s", "pools of a readout unit",
             "of a builder unit")]
    for builders in (64, 128, 240):
        text = example.replace("count = 240", f"count = {builders}").replace('"1kHz"', '"0.001Hz"').replace('"fanin-data"', '"discard"')
        text = text.replace('duration = "10s"', 'duration = "1h"')
        each = builders // 4
        for nodes in ("ru[0-15]", *(f"bu[{each * i}-{each * (i + 1) - 1}]" for i in range(4))):
            text += f'[[process]]\nnodes = ["{nodes}"]\n'
        watched = watch_run(m, f"connections-{builders}", text)
        rows.append((f"{builders}", f"{16 * builders}", f"{watched['cores'] * 100:.1f} %", f"{watched['waits_per_s']:.0f}",
                     *(f"{watched['nodes'][node]['pool_bytes'] / count / 2**20:.0f} MiB" for node, count in (("ru0", 16), ("bu0", each)))))
    m.table(*rows)


def idle(m):
    own = m.evb("idle", "--rus", "2", "--bus", "2", "--idle", "--runs", "3", "--duration", "5s")["evb"]
    m.table(("idle process", "of a core", "wake-ups/s"),
            *((p["name"], f"{p['cpu'] * 100:.2f} %", f"{p['waits_per_s']:.0f}") for p in own["processes"]))


def memory(m):
    """Five minutes of the quickstart without storage: the peak of each process beside its pools."""
    duration = os.environ.get("FANIN_BENCH_MEMORY", "5min")
    file = m.results / "memory.json"
    nodes = m.run(file, [m.fanin, "run", "examples/quickstart.toml", "--set", "run.output=discard", "--duration", duration,
                         "--quiet", "--json", file])["nodes"]
    rows = [(f"process, after {duration}", "pools", "peak", "beside the pools")]
    for name, node in nodes.items():
        beside = node["peak_rss_bytes"] - node["pool_bytes"]
        assert beside <= MARGIN, f"{name}: {beside >> 20} MiB beside its pools"
        rows.append((name, *(f"{count / 2**20:.0f} MiB" for count in (node["pool_bytes"], node["peak_rss_bytes"], beside))))
    m.table(*rows)


def storage(m):
    """The sink beside dd, 2 GiB a run."""
    program = Path(m.fanin).parent.parent / "bench" / "fanin_storage_microbench"
    file = m.results / "storage.json"
    result = m.run(file, [program, "--benchmark_enable_random_interleaving=true", "--benchmark_report_aggregates_only=true",
                          f"--benchmark_out={file}"])
    medians = {entry["run_name"].split("/iterations")[0]: entry["real_time"]
               for entry in result["benchmarks"] if entry.get("aggregate_name") == "median"}
    rows = [("2 GiB, median", "time", "of dd")]
    for mode in ("written", "synced"):
        dd = medians[f"dd/{mode}"]
        rows.append((f"dd, {mode}", f"{dd:.0f} ms", ""))
        for size in (200, 16384):
            own = medians[f"sink/{mode}/{size}"]
            rows.append((f"fanin, {mode}, fragments of {size} B", f"{own:.0f} ms", f"{dd / own:.2f}"))
    m.table(*rows)


SETS = {"speed": speed, "latency": latency, "laboratory": laboratory, "idle": idle, "connections": connections, "filter": filter_cost,
        "memory": memory, "storage": storage, "sockets": sockets, "ofi": ofi}


def replace_between_marks(document, name, text, kind="bench"):
    """The document with the set's text between its marks; it must have both."""
    begin, end = f"<!-- {kind} {name} -->\n", f"<!-- end of {kind} {name} -->\n"
    before, found_begin, rest = document.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f"the marks '{begin.strip()}' and '{end.strip()}' are missing")
    return before + begin + text + end + after


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fanin", metavar="FANIN")
    parser.add_argument("results", metavar="RESULTS", type=Path)
    parser.add_argument("sets", metavar="SET", nargs="*", help=", ".join(SETS))
    parser.add_argument("--record", metavar="DOCUMENT", type=Path, help="writes the tables into it, between their marks")
    parser.add_argument("--again", action="store_true", help="measures nothing: makes the tables from the JSON in RESULTS")
    asked = parser.parse_intermixed_args()
    for name in asked.sets:
        if name not in SETS:
            parser.error(f"no measurement '{name}': {', '.join(SETS)}")
    asked.results.mkdir(parents=True, exist_ok=True)
    short = float(SECONDS) < 1
    if short:
        print("Measurements of less than 1 s: a check, not recorded.\n")
    for name in asked.sets or SETS:
        measurements = Measurements(asked.fanin, asked.results, asked.again)
        SETS[name](measurements)
        print(measurements.text(), flush=True)
        if asked.record and not short:
            asked.record.write_text(replace_between_marks(asked.record.read_text(), name, measurements.text()))


if __name__ == "__main__":
    main()
