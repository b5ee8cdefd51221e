"""Baseline, folded and trapezoidal event builders over sizes of fragments (Pieri 2006): ./dev evidence gigabit.

There: computers with two links of 1 Gb/s. Here: hosts with one link of 100 Mb/s, and as much smaller numbers of them.
"""

import json
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from evidence_common import PATIENCE_S, bytes_of, draw, good, megabytes, percent, run_json, table

RATE = "100Mb/s"
SIZES = ["256B", "1KiB", "4KiB", "16KiB", "64KiB"]
DURATION = "5s"
VIRTUAL = """
[run]
duration = "10s"
output = "discard"

[network]
url = "tcp"

[event]
batch_events = {batch_events}
batch_size = "256KiB"

[buffers]
readout = "16MiB"
builder = "8MiB"
page = "128KiB"

[source]
type = "emulator"
size = "{size}"
fragment_max = "{size}"

[[readout]]
count = 16
source = [{{ id = 0x100 }}]

[[builder]]
count = 240
"""


@dataclass(frozen=True)
class Row:
    arrangement: str  # "baseline", which is "folded" at the same time, "trapezoidal", "16 x 240", "work"
    nodes: str  # hosts
    size: str

    def name(self):
        return "/".join(asdict(self).values())


def rows():
    for arrangement, nodes in (("baseline", "4x4"), ("trapezoidal", "2x8")):
        yield from (Row(arrangement, nodes, size) for size in SIZES)
    yield from (Row("16 x 240", "4x8", size) for size in SIZES)
    yield Row("work", "2x2", "16KiB")


def testbed_of(row):
    links = "1Gb/s" if row.arrangement == "work" else RATE  # 64 MB/s for each builder unit
    return [row.nodes, "--rate", links, "--switch-buffer", "128KiB", "--mtu", "9000"]


def bench(row):
    words = ["--testbed", "--nodes", row.nodes, "--fragment-size", row.size, "--runs", "1", "--duration", DURATION, "--stolen-max", "100",
             "--wait", "block", "--shaping", "linear-shift", "--shaping-window", "96KiB"]
    if row.arrangement == "work":
        return [*words, "--no-baselines", "--rate", "3.9kHz"]  # of 2 x 16 KiB
    return [*words, *(["--full-duplex"] if row.arrangement == "baseline" else [])]


def measure(fanin, row, testbed):
    testbed.need(testbed_of(row))
    date = time.strftime("%Y-%m-%d")
    if row.arrangement == "16 x 240":
        return {"date": date, "commit": commit_of(fanin), "results": {"evb": measure_virtual(fanin, row, testbed)}}
    result = run_json([fanin, "bench", "evb", *bench(row), "--quiet", "--json", "-"], testbed.environment)
    keys = ("per_node_bytes_per_s", "bytes_per_s", "ratio_to_link", "ratio_to_nxn", "idle_cpu", "processes")
    found = {one["what"]: {key: one[key] for key in keys if one.get(key) is not None} for one in result["results"]}
    return {"date": date, "commit": result["machine"]["commit"], "results": found}


def commit_of(fanin):
    return subprocess.run([fanin, "--version"], capture_output=True, text=True).stdout.partition("commit ")[2].partition(")")[0]


def measure_virtual(fanin, row, testbed):
    """16 readout units on 4 hosts and 240 builder units on 8: a process on each."""
    processes = [f"ru[{4 * i}-{4 * i + 3}]" for i in range(4)] + [f"bu[{30 * i}-{30 * i + 29}]" for i in range(8)]
    text = VIRTUAL.format(size=row.size, batch_events=16 if bytes_of(row.size) > 4096 else 64)
    text += "".join(f'\n[[process]]\nnodes = ["{nodes}"]\n' for nodes in processes)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "virtual.toml"
        file.write_text(text)
        done = subprocess.run([fanin, "run", str(file), "--testbed", "--quiet", "--json", "-"], env=testbed.environment, cwd=folder,
                              capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "the run failed")
    result = json.loads(done.stdout)
    return {"bytes_per_s": result["throughput_bytes_per_s"], "per_node_bytes_per_s": result["throughput_bytes_per_s"] / 4}


def headline(measured):
    return megabytes(measured["results"]["evb"]["per_node_bytes_per_s"]) + " MB/s"


HEAD = ["fragment", "baseline, 4 x 4", "of the links", "folded, 4 hosts", "trapezoidal, 2 x 8", "of the links", "16 x 240 on 4 x 8 hosts"]


def by_size(found, arrangement):
    return {one["size"]: one["results"] for one in good(found, [row for row in rows() if row.arrangement == arrangement])}


def tables(found):
    base, trapezoid, virtual = (by_size(found, name) for name in ("baseline", "trapezoidal", "16 x 240"))

    def cell(results, what, key, text=megabytes):
        return text(results.get(what, {}).get(key)) if results else "-"

    lines = [[size, cell(base.get(size), "evb", "per_node_bytes_per_s"), cell(base.get(size), "evb", "ratio_to_link", percent),
              cell(base.get(size), "full duplex", "per_node_bytes_per_s"), cell(trapezoid.get(size), "evb", "per_node_bytes_per_s"),
              cell(trapezoid.get(size), "evb", "ratio_to_link", percent), cell(virtual.get(size), "evb", "per_node_bytes_per_s")]
             for size in SIZES]
    text = table("MB/s of a readout unit's host, links of 100 Mb/s", HEAD, lines)
    for one in by_size(found, "work").values():
        cpu = {process["name"]: process["cpu"] for process in one["evb"]["processes"]}
        builders = [share for name, share in cpu.items() if name.startswith("bu")]
        text += [f"A builder unit that builds {megabytes(one['evb']['bytes_per_s'] / 2)} MB/s takes {100 * max(builders):.1f} % of a core.", ""]
    return text


def plots(found, folder):
    def line(arrangement, what):
        return [(bytes_of(size), results[what]["per_node_bytes_per_s"] / 1e6) for size, results in by_size(found, arrangement).items()
                if what in results]

    panels = {"baseline, 4 x 4": {"nxn": line("baseline", "nxn"), "event building": line("baseline", "evb")},
              "folded, 4 hosts": {"event building": line("baseline", "full duplex")},
              "trapezoidal": {"nxn": line("trapezoidal", "nxn"), "event building": line("trapezoidal", "evb"),
                              "16 x 240": line("16 x 240", "evb")}}
    draw(folder / "gigabit.svg", {title: {name: points for name, points in lines.items() if points} for title, lines in panels.items()},
         "fragment (B)", "MB/s of a readout unit's host", x_log=True, names=["nxn", "event building", "16 x 240"])
    return ["gigabit.svg"]
