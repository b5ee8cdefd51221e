"""Single figures and tables of the papers, a command each: ./dev evidence figures.

Rates over sizes of fragments (Forrest 2014, figures 5 and 7), two-way throughput (Moser 2007, table III), and an event builder
watched over a minute, with other work on its computer from half of it on (Cesini 2016, figures 2 to 5).
"""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import by_size
from evidence.common import good, megabytes, percent, run_json, size_text, table

SHORT = ["--runs", "3", "--duration", "1s"]
SLOW = ["--rate", "100Mb/s", "--switch-buffer", "128KiB", "--mtu", "9000"]
SHAPED = ["--shaping", "linear-shift", "--shaping-window", "96KiB"]


@dataclass(frozen=True)
class Row:
    figure: str

    def name(self):
        return self.figure


@dataclass(frozen=True)
class Figure:
    title: str
    command: list
    drawing: bool = True
    testbed: list | None = None


FIGURES = {
    "nxn": Figure("Two senders to two receivers", ["nxn", "--rus", "2", "--bus", "2", "--sizes", "64B..1MiB", *SHORT]),
    "event-building": Figure("Event building, 2 x 2", ["evb", "--rus", "2", "--bus", "2", "--fragment-sizes", "64B..1MiB", *SHORT]),
    "receive": Figure("Fragments from senders of their own, 4 x 4, links of 100 Mb/s; 1 kHz is required", [
        "evb", "--testbed", "--nodes", "4x4", "--receive", "--fragment-sizes", "256B..64KiB", "--requirement", "1kHz", "--wait", "block",
        "--stolen-max", "100", "--runs", "1", "--duration", "4s", *SHAPED], testbed=["4x4", *SLOW]),
    "two-way": Figure("Two-way throughput, 2000 messages under way", [
        "roundtrip", "--pipeline", "2000", "--sizes", "64B,1KiB,4KiB,16KiB,64KiB", *SHORT], drawing=False),
    "side-load": Figure("An event builder over a minute, with a core of other work from half of it on", [
        "evb", "--testbed", "--nodes", "1x1", "--duration", "60s", "--every", "1s", "--side-load", "1", "--side-load-from", "50%"],
        testbed=["1x1", "--rate", "1Gb/s", "--switch-buffer", "512KiB", "--mtu", "9000"]),
}


def rows():
    return (Row(name) for name in FIGURES)


def measure(fanin, row, testbed):
    figure = FIGURES[row.figure]
    if figure.testbed:
        testbed.need(figure.testbed)
    else:
        testbed.down()
    with TemporaryDirectory() as folder:
        drawing = Path(folder) / "drawing.svg"
        plot = ["--plot", str(drawing)] if figure.drawing else []
        result = run_json([fanin, "bench", *figure.command, *plot, "--quiet", "--json", "-"], testbed.environment)
        return {"results": result["results"], "timeline": result.get("timeline"), "drawing": drawing.read_text() if figure.drawing else None}


def headline(measured):
    return f"{len(measured['results'])} results"


def of_all(found, name):
    """What was measured for that figure; None: nothing."""
    return next(iter(good(found, [Row(name)])), None)


def sizes_of(found, name):
    """Pairs of a size as text, and the results of it by contender."""
    results = (of_all(found, name) or {"results": []})["results"]
    return [(size_text(size), row) for size, row in by_size(results).items()]


def gigabytes(row):
    return "-" if row is None else f"{row['bytes_per_s'] / 1e9:.3g}"


def rates(found, name, contenders, own, peer):
    head = ["bytes", *(f"{what}, GB/s" for what in contenders), f"{own} of {peer}"]
    lines = [[size, *(gigabytes(row.get(what)) for what in contenders), percent(row[own]["bytes_per_s"] / row[peer]["bytes_per_s"])]
             for size, row in sizes_of(found, name)]
    return table(FIGURES[name].title, head, lines) if lines else []


def receive(found):
    lines = [[size, f"{row['evb']['events_per_s'] / 1e3:.2f}", megabytes(row["evb"]["per_node_bytes_per_s"]),
              percent(row["evb"].get("ratio_to_link")), "yes" if row["evb"]["reaches_requirement"] else "no"]
             for size, row in sizes_of(found, "receive")]
    return table(FIGURES["receive"].title, ["bytes", "kHz", "MB/s a readout unit", "of the links", "1 kHz reached"], lines) if lines else []


def side_load(found):
    measured = of_all(found, "side-load")
    if not measured:
        return []
    timeline = measured["timeline"]
    begun = timeline["side_load_from_s"]
    halves = {"alone": [one for one in timeline["moments"] if one["at_s"] <= begun],
              "beside the other work": [one for one in timeline["moments"] if one["at_s"] > begun + 1]}
    lines = [[name, *(f"{sum(one[key] for one in moments) / len(moments) / scale:.{digits}f}"
                      for key, scale, digits in (("bytes_per_s", 1e6, 1), ("cpu", 1, 2), ("side_load_cpu", 1, 2)))]
             for name, moments in halves.items() if moments]
    sensors = (f"{name.removesuffix('_c').removesuffix('_w').replace('_', ' ')}: {sensor['text']}"
               for name, sensor in timeline["sensors"].items())
    return [*table(FIGURES["side-load"].title, ["", "MB/s", "cores of the event builder", "cores of the other work"], lines),
            f"Sampling once a second took {100 * timeline['sampling']['cpu']:.2f} % of a core. Sensors: {'; '.join(sensors)}.", ""]


def tables(found):
    return [*rates(found, "nxn", ("raw", "fair", "fanin"), "fanin", "raw"), *rates(found, "event-building", ("nxn", "evb"), "evb", "nxn"),
            *receive(found), *rates(found, "two-way", ("raw", "zeromq", "fanin"), "fanin", "raw"), *side_load(found)]


def plots(found, folder):
    files = []
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in FIGURES.items():
        if figure.drawing and of_all(found, name):
            (folder / f"{name}.svg").write_text(found[name]["drawing"])
            files.append(f"{name}.svg")
    return files
