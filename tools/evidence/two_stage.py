"""Two stages of event building beside one over the same links (Pieri 2006, the FED builder): ./dev evidence two-stage.

One stage: 4 readout and 4 builder units, each on a host of its own. Two stages: as many in two groups, whose builder units send what
they built to the readout units of two slices, each with two builder units: again each on a host of its own. So each byte crosses a
link three times instead of once, and no link carries more than in one stage.
"""

import json
import signal
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from evidence.common import PATIENCE_S, bytes_of, draw, good, idle_time, megabytes, percent, table, with_idle_time

RATE_MBITS = 100  # of the links
LINK_BYTES = 0.124e6  # a second and Mb/s, of payload over a stream
SIZES = ["512B", "2KiB", "8KiB"]
SECONDS = 15
HOSTS = "10x9"  # 4 event managers and 4 times 4 units
BLOCK = 256  # events

COMMON = """
[run]
number = 1
output = "discard"
{run}
[network]
url = "tcp"

[shaping]
policy = "linear-shift"
window = "64KiB"

[buffers]
readout = "64MiB"
builder = "64MiB"
"""
EMULATED = """
[source]
type = "emulator"
size = "{size}"
fragment_max = "{size}"

[[readout]]
count = {count}
source = [{{ id = {first}, count = 2 }}]

[[builder]]
count = {count}
"""
GROUP = COMMON + """
[event]
batch_events = {block}
assignment = "by-number"

[storage]
sink = "forward"

[slice]
urls = [{urls}]
source = {source}
""" + EMULATED
SLICE = COMMON + """
[event]
batch_events = {block}
deadline = "1min"

[slice]
number = {number}
of = 2
block = {block}

[source]
type = "receive"
wait_for_sender = true
fragment_max = "{super_max}B"

{readouts}
[[builder]]
count = 2
"""


@dataclass(frozen=True)
class Row:
    stages: str
    size: str

    def name(self):
        return "/".join(asdict(self).values())


def rows():
    for size in SIZES:
        yield Row("one", size)
        yield Row("two", size)


class Run:
    """An event builder, each of its processes on a host of its own."""

    def __init__(self, fanin, folder, name, text, hosts, environment):
        (folder / f"{name}.toml").write_text(text)
        (folder / f"{name}.hosts").write_text("".join(hosts))
        self.name = name
        self.process = subprocess.Popen(
            [fanin, "run", f"{name}.toml", "--hosts", f"{name}.hosts", "--quiet", "--json", f"{name}.json"], cwd=folder,
            env=environment, stdout=subprocess.DEVNULL, stderr=(folder / f"{name}.log").open("w"), text=True)
        self.folder = folder

    def result(self):
        if self.process.wait(PATIENCE_S) != 0:
            raise RuntimeError(f"{self.name}: {(self.folder / f'{self.name}.log').read_text().strip()[-300:]}")
        return json.loads((self.folder / f"{self.name}.json").read_text())


def host_lines(environment):
    lines = (Path(environment["FANIN_TESTBED"]) / "hosts").read_text().splitlines(keepends=True)
    return [line for line in lines if not line.startswith("#")]


def one_stage(fanin, row, folder, environment, _):
    text = (COMMON + EMULATED).format(run=f'duration = "{SECONDS}s"', size=row.size, count=4, first=0x100)
    result = Run(fanin, folder, "one", text, host_lines(environment)[:9], environment).result()
    return {"bytes_per_s": result["throughput_bytes_per_s"], "events_per_s": result["event_rate_hz"]}


def two_stages(fanin, row, folder, environment, rate_mbits):
    lines = host_lines(environment)
    managers, units = lines[:4], lines[4:]
    # the readout unit of slice s for group g is on the host 8 + 2 s + g
    address = {(s, g): units[8 + 2 * s + g].split()[0].split(",")[0] for s in (0, 1) for g in (0, 1)}
    total = events(row.size, rate_mbits)
    super_max = 4 * (bytes_of(row.size) + 64) + 1024
    runs = []
    try:
        for s in (0, 1):
            readouts = "\n".join(f'[[readout]]\nsource = [{{ id = {0x1000 + g}, listen = "tcp://{address[s, g]}:7600", '
                                 f'merged = ["{0x100 * (g + 1)}-{0x100 * (g + 1) + 3}"] }}]\n' for g in (0, 1))
            text = SLICE.format(run="", number=s, block=BLOCK, super_max=super_max, readouts=readouts)
            runs.append(Run(fanin, folder, f"slice{s}", text, [managers[s], *units[8 + 2 * s:10 + 2 * s], *units[12 + 2 * s:14 + 2 * s]],
                            environment))
        for g in (0, 1):
            urls = ", ".join(f'"tcp://{address[s, g]}:7600"' for s in (0, 1))
            text = GROUP.format(run=f"events = {total}", block=BLOCK, urls=urls, source=0x1000 + g, size=row.size, count=2,
                                first=0x100 * (g + 1))
            runs.append(Run(fanin, folder, f"group{g}", text, [managers[2 + g], *units[4 * g:4 * g + 4]], environment))
        for run in runs[2:]:
            run.result()
        for run in runs[:2]:
            run.process.send_signal(signal.SIGINT)
        results = [run.result() for run in runs[:2]]
    finally:
        for run in runs:
            if run.process.poll() is None:
                run.process.kill()
                run.process.wait()
    if sum(result["events"]["built"] for result in results) != total:
        raise RuntimeError(f"the slices have built {[result['events'] for result in results]} of {total} events")
    incomplete = sum(result["events"]["incomplete"] for result in results)
    return {"events_per_s": sum(result["event_rate_hz"] for result in results), "incomplete": incomplete,
            "bytes_per_s": sum(result["throughput_bytes_per_s"] for result in results)}


def events(size, rate_mbits=RATE_MBITS):
    """For about SECONDS at what the links of the readout units carry, in whole blocks for both slices."""
    per_s = LINK_BYTES * rate_mbits / (2 * bytes_of(size))
    return int(SECONDS * per_s / (2 * BLOCK)) * 2 * BLOCK


def measure(fanin, row, testbed):
    stages = one_stage if row.stages == "one" else two_stages

    def run(rate_mbits):
        testbed.need([HOSTS, "--rate", f"{rate_mbits}Mb/s", "--switch-buffer", "128KiB", "--mtu", "9000"])
        with TemporaryDirectory() as folder, idle_time() as idle:
            found = stages(fanin, row, Path(folder), testbed.environment, rate_mbits)
        return {row.stages: found | {"idle_cpu": idle()}}

    measured = with_idle_time(RATE_MBITS, run)
    return {"results": measured["results"][row.stages] | {"mbits": measured["measured_mbits"]}}


def headline(measured):
    return megabytes(measured["results"]["bytes_per_s"]) + " MB/s"


HEAD = ["fragment", "one stage, events/s", "MB/s", "links", "idle CPU", "two stages, events/s", "MB/s", "links", "idle CPU",
        "of one stage over such links"]


def by_size(found, stages):
    return {one["size"]: one["results"] for one in good(found, [row for row in rows() if row.stages == stages])}


def cells(results):
    return [f"{results['events_per_s']:.0f}", megabytes(results["bytes_per_s"]), f"{results['mbits']} Mb/s", percent(results["idle_cpu"])]


def over_such_links(results):
    return results["events_per_s"] / results["mbits"]


def tables(found):
    one, two = by_size(found, "one"), by_size(found, "two")
    lines = [[size, *cells(one[size]), *cells(two[size]), percent(over_such_links(two[size]) / over_such_links(one[size]))]
             for size in SIZES if size in one and size in two]
    return table("Eight sources in four readout units", HEAD, lines)


def plots(found, folder):
    lines = {f"{stages} stage{'s' * (stages == 'two')}": [(bytes_of(size), results["events_per_s"] / 1e3)
                                                         for size, results in by_size(found, stages).items()] for stages in ("one", "two")}
    draw(folder / "two-stage.svg", {"events built": {name: points for name, points in lines.items() if points}}, "fragment (B)", "kHz",
         x_log=True, y_log=True)
    return ["two-stage.svg"]
