"""Baseline, folded and trapezoidal event builders over sizes of fragments (Pieri 2006): ./dev evidence gigabit.

There: computers with two links of 1 Gb/s. Here: hosts with one link of 100 Mb/s, and fewer of them.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from evidence.common import bytes_of, draw, good, megabytes, percent, run_json, table, with_idle_time

RATE_MBITS = 100  # of the links
WORK_MBITS = 1000  # 64 MB/s for each builder unit
SIZES = ["256B", "1KiB", "4KiB", "16KiB", "64KiB"]
DURATION = "5s"
VIRTUAL = """
[run]
duration = "10s"
output = "discard"

[network]
url = "tcp://127.0.0.1"

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
count = {builders}
"""


@dataclass(frozen=True)
class Row:
    arrangement: str  # "baseline", which is "folded" at the same time, "trapezoidal", "virtual", "work"
    nodes: str
    size: str

    def name(self):
        return "/".join(asdict(self).values())


def rows():
    for arrangement, nodes in (("baseline", "4x4"), ("trapezoidal", "2x8")):
        yield from (Row(arrangement, nodes, size) for size in SIZES)
    for nodes in ("16x60", "16x240"):
        yield from (Row("virtual", nodes, size) for size in SIZES)
    yield Row("work", "2x2", "16KiB")


def testbed_of(row, rate_mbits):
    return [row.nodes, "--rate", f"{rate_mbits}Mb/s", "--switch-buffer", "128KiB", "--mtu", "9000"]


def bench(row):
    words = ["--testbed", "--nodes", row.nodes, "--fragment-size", row.size, "--runs", "1", "--duration", DURATION, "--stolen-max", "100",
             "--wait", "block", "--shaping", "linear-shift", "--shaping-window", "96KiB"]
    if row.arrangement == "work":
        return [*words, "--no-baselines", "--rate", "3.9kHz", "--readout-buffer", "512MiB"]  # of 2 x 16 KiB
    return [*words, *(["--full-duplex"] if row.arrangement == "baseline" else [])]


KEYS = ("per_node_bytes_per_s", "bytes_per_s", "ratio_to_link", "ratio_to_nxn", "idle_cpu", "processes")


def measure(fanin, row, testbed):
    if row.arrangement == "virtual":
        return {"results": {"evb": measure_virtual(fanin, row)}}

    def over_links(rate_mbits):
        testbed.need(testbed_of(row, rate_mbits))
        result = run_json([fanin, "bench", "evb", *bench(row), "--quiet", "--json", "-"], testbed.environment)
        return {one["what"]: {key: one[key] for key in KEYS if one.get(key) is not None} for one in result["results"]}

    if row.arrangement == "work":  # what it costs, at a rate of its own
        return {"results": over_links(WORK_MBITS)}
    return with_idle_time(RATE_MBITS, over_links)


def measure_virtual(fanin, row):
    """Many units in few processes on this host: what the connections cost, since there is no slow link."""
    builders = int(row.nodes.partition("x")[2])
    each = builders // 4
    processes = ["ru[0-15]"] + [f"bu[{each * i}-{each * (i + 1) - 1}]" for i in range(4)]
    text = VIRTUAL.format(size=row.size, batch_events=16 if bytes_of(row.size) > 4096 else 64, builders=builders)
    text += "".join(f'\n[[process]]\nnodes = ["{nodes}"]\n' for nodes in processes)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "virtual.toml"
        file.write_text(text)
        result = run_json([fanin, "run", str(file), "--quiet", "--json", "-"], None)
    return {"bytes_per_s": result["throughput_bytes_per_s"], "per_node_bytes_per_s": result["throughput_bytes_per_s"] / 16}


def headline(measured):
    return megabytes(measured["results"]["evb"]["per_node_bytes_per_s"]) + " MB/s"


HEAD = ["fragment", "baseline, 4 x 4", "of the links", "folded, 4 hosts", "trapezoidal, 2 x 8", "of the links"]


def by_size(found, arrangement, nodes=None):
    picked = [row for row in rows() if row.arrangement == arrangement and nodes in (None, row.nodes)]
    return {one["size"]: one["results"] for one in good(found, picked)}


def of_links(found, arrangement, size):
    """With the rate of the links, where it was not the usual one."""
    one = next(iter(good(found, [row for row in rows() if (row.arrangement, row.size) == (arrangement, size)])), None)
    if one is None:
        return "-"
    slower = "" if one["measured_mbits"] == RATE_MBITS else f" (links of {one['measured_mbits']} Mb/s)"
    return percent(one["results"]["evb"].get("ratio_to_link")) + slower


def tables(found):
    base, trapezoid = by_size(found, "baseline"), by_size(found, "trapezoidal")

    def cell(results, what, key):
        return megabytes(results.get(what, {}).get(key)) if results else "-"

    lines = [[size, cell(base.get(size), "evb", "per_node_bytes_per_s"), of_links(found, "baseline", size),
              cell(base.get(size), "full duplex", "per_node_bytes_per_s"), cell(trapezoid.get(size), "evb", "per_node_bytes_per_s"),
              of_links(found, "trapezoidal", size)] for size in SIZES]
    text = table("MB/s of a readout unit's host, links of 100 Mb/s", HEAD, lines)
    few, many = by_size(found, "virtual", "16x60"), by_size(found, "virtual", "16x240")
    text += table("MB/s of all units in six processes on one host",
                  ["fragment", "16 x 60", "16 x 240"],
                  [[size, cell(few.get(size), "evb", "bytes_per_s"), cell(many.get(size), "evb", "bytes_per_s")] for size in SIZES])
    for one in by_size(found, "work").values():
        cpu = {process["name"]: process["cpu"] for process in one["evb"]["processes"]}
        builders = [share for name, share in cpu.items() if name.startswith("bu")]
        text += [f"A builder unit that builds {megabytes(one['evb']['bytes_per_s'] / 2)} MB/s takes {100 * max(builders):.1f} % of a core.", ""]
    return text


def plots(found, folder):
    def line(arrangement, what, key="per_node_bytes_per_s", nodes=None):
        return [(bytes_of(size), results[what][key] / 1e6) for size, results in by_size(found, arrangement, nodes).items()
                if what in results]

    panels = {"baseline, 4 x 4": {"nxn": line("baseline", "nxn"), "event building": line("baseline", "evb")},
              "folded, 4 hosts": {"event building": line("baseline", "full duplex")},
              "trapezoidal, 2 x 8": {"nxn": line("trapezoidal", "nxn"), "event building": line("trapezoidal", "evb")}}
    draw(folder / "gigabit.svg", {title: {name: points for name, points in lines.items() if points} for title, lines in panels.items()},
         "fragment (B)", "MB/s of a readout unit's host", x_log=True, names=["nxn", "event building"])
    return ["gigabit.svg"]
