#!/usr/bin/env python3
"""Measures on the testbed what shaping does (Moser 2007, tables V and VI, figure 13); ./dev evidence shaping runs it.

Usage: evidence.py FANIN RESULTS shaping [--minutes N] [--restart] [--record DOCUMENT]

RESULTS is a folder. Each row is written there when it is measured, so a run that is ended loses one row at most, and the next one
goes on where it stopped; --restart begins anew. It stops after N minutes (60). The testbed is its own, in RESULTS. A row in which
less than a quarter of the processors' time was idle says more about the machine than about the network: it is measured again with
links of half the rate. DOCUMENT gets tables of what there is, between `<!-- evidence shaping -->` and `<!-- end of evidence shaping -->`.

Exit status: 0 all rows are there, 1 some are left or failed, 2 wrong usage.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import replace_between_marks

TESTBED = [sys.executable, str(Path(__file__).resolve().parent / "testbed.py")]
POLICIES = ["none", "random", "linear-shift", "barrel-shifter", "tokens"]
RECOMMENDED = "linear-shift"  # the one that is followed over all N x N
WINDOW = {"32KiB": "32KiB", "128KiB": "128KiB", "512KiB": "128KiB"}  # of the shaping, for each buffer of the switch
DURATION = "5s"
IDLE_LEAST = 0.25
NEARLY_FULL = "10.8kHz"  # events of 2 KiB from each readout unit: 90 % of a link of 200 Mb/s
HALVINGS_MOST = 3  # of the rate of the links
ROW_S = 120  # a row begins only if there is as much time left
PATIENCE_S = 300  # for one bench


@dataclass(frozen=True)
class Row:
    table: str
    nodes: str
    policy: str
    buffer: str = "128KiB"
    mtu: int = 9000
    rate_mbits: int = 200  # of the links
    size: str = "16KiB"
    trigger: str = ""  # empty: as fast as possible, beside one stream and nxn
    sigma: str = ""  # of log-normal sizes with that mean; empty: all are equal
    more: str = ""  # an option of the bench

    def name(self):
        return "/".join(str(value) for value in asdict(self).values())

    def testbed(self, rate_mbits):
        return [self.nodes, "--rate", f"{rate_mbits}Mb/s", "--switch-buffer", self.buffer, "--mtu", str(self.mtu)]

    def bench(self):
        fixed = ["--testbed", "--nodes", self.nodes, "--fragment-size", self.size, "--shaping", self.policy, "--runs", "1",
                 "--duration", DURATION, "--stolen-max", "100"]
        window = ["--shaping-window", WINDOW[self.buffer]] if self.policy != "none" else []
        trigger = ["--rate", self.trigger, "--readout-buffer", "256MiB"] if self.trigger else []  # of what is held at that rate
        return [*fixed, *window, *trigger, *(["--fragment-sigma", self.sigma] if self.sigma else []),
                *self.more.split()]


def rows():
    """In an order in which few testbeds have to be made."""
    for nodes in ("8x8", "4x7", "7x4"):
        for buffer in ("32KiB", "128KiB", "512KiB"):
            yield from (Row("buffers", nodes, policy, buffer) for policy in POLICIES)
            if buffer == "128KiB":
                yield from (Row("buffers", nodes, policy, buffer, size="2KiB", sigma="2KiB") for policy in POLICIES)
    for units in range(1, 8):
        yield from (Row("nodes", f"{units}x{units}", policy) for policy in ("none", RECOMMENDED, "barrel-shifter"))
    for mtu, rate in ((1500, 50), (7000, 200), (9000, 200)):
        yield from (Row("mtu", "4x4", policy, mtu=mtu, rate_mbits=rate) for policy in ("none", RECOMMENDED))
    yield from (Row("duplex", "4x4", policy, more="--full-duplex") for policy in ("none", RECOMMENDED))
    yield from (Row("throttled", "4x4", policy, more="--throttle 10% --no-baselines") for policy in POLICIES)
    for size, sigma, trigger in (("2KiB", "2KiB", "100Hz"), ("2KiB", "2KiB", "1kHz"), ("2KiB", "2KiB", NEARLY_FULL), ("200B", "", "100kHz")):
        yield from (Row("latency", "2x2", policy, size=size, trigger=trigger, sigma=sigma) for policy in POLICIES)


class Store:
    """What was measured: a line for each row, the last one of a name counts."""

    def __init__(self, folder):
        self.file = folder / "rows.jsonl"

    def read(self):
        found = {}
        if self.file.exists():
            for line in self.file.read_text().splitlines():
                try:
                    one = json.loads(line)
                    found[one["name"]] = one
                except (ValueError, KeyError):
                    pass  # the end of a run that was killed
        return found

    def add(self, row, measured):
        with self.file.open("a") as file:
            file.write(json.dumps({"name": row.name(), **asdict(row), **measured}) + "\n")

    def restart(self):
        self.file.unlink(missing_ok=True)


class Testbed:
    """The one that is up, made anew when a row needs another one."""

    __test__ = False  # for pytest

    def __init__(self, folder):
        self.environment = os.environ | {"FANIN_TESTBED": str(folder / "testbed")}
        self.words = None

    def command(self, *words):
        done = subprocess.run([*TESTBED, *words], env=self.environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip() or f"testbed {words[0]} failed")

    def need(self, words):
        if words == self.words:
            return
        self.down()
        self.command("up", *words)
        self.words = words

    def down(self):
        self.command("down")
        self.words = None


def run_bench(fanin, row, environment):
    done = subprocess.run([fanin, "bench", "evb", *row.bench(), "--quiet", "--json", "-"], env=environment, capture_output=True,
                          text=True, timeout=PATIENCE_S)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


KEYS = ["bytes_per_s", "ratio_to_link", "ratio_to_nxn", "idle_cpu", "retransmitted", "switch_drops", "loaded", "p50_us", "p99_us",
        "p999_us", "remark", "ratio_to_apart", "cpu_before", "cpu_quota", "cpu_throttled", "ratio_of_others"]


def measure(fanin, row, testbed):
    """Until there is idle time, or the links cannot be made slower."""
    rate = row.rate_mbits
    for halving in range(HALVINGS_MOST + 1):
        testbed.need(row.testbed(rate))
        result = run_bench(fanin, row, testbed.environment)
        found = {one["what"]: {key: one[key] for key in KEYS if one.get(key) is not None} for one in result["results"]}
        # with a trigger the rate of the links is not what costs
        idle = min(found[what]["idle_cpu"] for what in ("evb", "full duplex", "throttled") if what in found)
        if idle >= IDLE_LEAST or row.trigger or halving == HALVINGS_MOST:
            break
        rate //= 2
    return {"measured_mbits": rate, "commit": result["machine"]["commit"], "date": time.strftime("%Y-%m-%d"), "results": found}


def percent(value):
    return "-" if value is None else f"{100 * value:.0f} %"


def number(value):
    return "-" if value is None else f"{value:.0f}"


def size(one):
    return one["size"] + (", log-normal" if one["sigma"] else "")


def links(one, what):
    return f"{one['measured_mbits']} Mb/s" + (", too little idle time" if one["results"][what].get("loaded") else "")


def throughput_line(one):
    nxn, evb = one["results"].get("nxn", {}), one["results"]["evb"]
    return [one["nodes"], one["policy"], one["buffer"], size(one), str(one["mtu"]), links(one, "evb"),
            percent(nxn.get("ratio_to_link")), percent(evb.get("ratio_to_link")), percent(evb.get("ratio_to_nxn")),
            percent(evb.get("idle_cpu")), number(evb.get("switch_drops")), number(evb.get("retransmitted"))]


def latency_line(one):
    evb = one["results"]["evb"]
    return [one["trigger"], size(one), one["policy"], *(number(evb.get(key)) for key in ("p50_us", "p99_us", "p999_us")),
            percent(evb.get("idle_cpu")), evb.get("remark", "none")]


def duplex_line(one):
    evb, both = one["results"]["evb"], one["results"]["full duplex"]
    return [one["nodes"], one["policy"], links(one, "full duplex"), percent(evb.get("ratio_to_link")), percent(both.get("ratio_to_link")),
            percent(both.get("ratio_to_apart")), percent(both.get("idle_cpu"))]


def throttled_line(one):
    row = one["results"]["throttled"]
    return [one["nodes"], one["policy"], links(one, "throttled"), *(f"{row[key]:.4f}" for key in ("cpu_before", "cpu_quota", "cpu_throttled")),
            percent(row.get("ratio_of_others")), percent(row.get("idle_cpu"))]


THROUGHPUT = ["nodes", "shaping", "buffer of a port", "fragment", "MTU", "links", "nxn of the links", "event building of the links", "of nxn", "idle CPU",
              "packets dropped", "segments sent again"]
DUPLEX = ["nodes", "shaping", "links", "each on a host of its own, of the links", "two on a host, each direction, of the links", "of the former",
          "idle CPU"]
THROTTLED = ["nodes", "shaping", "links", "cores of a builder unit", "held to", "then", "rate of the others, of before", "idle CPU"]
LATENCY = ["trigger", "fragment", "shaping", "p50 (us)", "p99 (us)", "p99.9 (us)", "idle CPU", "remarks"]
TABLES = {"buffers": ("Buffers of the switch", THROUGHPUT, throughput_line),
          "nodes": ("N x N", THROUGHPUT, throughput_line),
          "mtu": ("Largest packet", THROUGHPUT, throughput_line),
          "duplex": ("A readout and a builder unit on each host", DUPLEX, duplex_line),
          "throttled": ("One builder unit held to a tenth of its processor time", THROTTLED, throttled_line),
          "latency": ("From trigger to commit, 2 x 2", LATENCY, latency_line)}


def document_text(found):
    lines, left = [], 0
    for table, (title, head, line) in TABLES.items():
        lines += [f"### {title}", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for row in rows():
            one = found.get(row.name())
            if row.table != table:
                continue
            if one is None or "error" in one:
                left += 1
                continue
            lines.append("| " + " | ".join(line(one)) + " |")
        lines.append("")
    commits = ", ".join(sorted({one["commit"] for one in found.values() if "commit" in one}))
    first = f"Commit {commits or '-'}; {left} rows are not measured." if left else f"Commit {commits}."
    return "\n".join([first, "", *lines]).rstrip() + "\n"


def record(document, found):
    marks = "<!-- evidence shaping -->\n<!-- end of evidence shaping -->\n"
    text = document.read_text() if document.exists() else "# Traffic shaping on the testbed\n\n" + marks
    document.write_text(replace_between_marks(text, "shaping", document_text(found), "evidence"))


def parse():
    parser = argparse.ArgumentParser(prog="./dev evidence", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fanin")
    parser.add_argument("results", type=Path)
    parser.add_argument("what", choices=["shaping"])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--restart", action="store_true")
    parser.add_argument("--record", type=Path, metavar="DOCUMENT")
    return parser.parse_args()


def main():
    options = parse()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    options.results.mkdir(parents=True, exist_ok=True)
    store, testbed = Store(options.results), Testbed(options.results)
    if options.restart:
        store.restart()
    until = time.monotonic() + 60 * options.minutes
    found = store.read()
    left = [row for row in rows() if "error" in found.get(row.name(), {"error": ""})]
    failed = 0
    try:
        while left and time.monotonic() + ROW_S <= until:
            row = left.pop(0)
            print(f"   {row.name()}: ", end="", file=sys.stderr, flush=True)
            try:
                measured = measure(options.fanin, row, testbed)
            except (RuntimeError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
                measured = {"error": str(error)}
                failed += 1
            store.add(row, measured)
            print(measured.get("error") or percent(measured["results"]["evb"].get("ratio_to_link")), file=sys.stderr, flush=True)
    finally:
        testbed.down()
    if options.record:
        record(options.record, store.read())
    print(f"{failed} rows failed, {len(left)} are left; {store.file} has the others")
    sys.exit(1 if failed or left else 0)


if __name__ == "__main__":
    main()
