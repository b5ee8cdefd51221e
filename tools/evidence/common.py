"""What all sets of ./dev evidence have in common: running benches, tables and plots."""

import contextlib
import json
import subprocess

from machine import ticks

PATIENCE_S = 300  # for one bench
IDLE_LEAST = 0.25  # of the processors' time: with less, a row says more about the machine than about the network
LONG = 10  # lines of a table
HALVINGS_MOST = 3  # of the rate of the links


def run_json(command, environment, patience_s=PATIENCE_S):
    """The result of a command that writes it to its standard output."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=patience_s)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"{command[1]} failed")
    return json.loads(done.stdout)


def with_idle_time(rate_mbits, measure):
    """measure(rate) gives results by contender: again over links of half the rate while one of them had too little idle time."""
    for halving in range(HALVINGS_MOST + 1):
        found = measure(rate_mbits)
        if min(one.get("idle_cpu", 1) for one in found.values()) >= IDLE_LEAST or halving == HALVINGS_MOST:
            return {"measured_mbits": rate_mbits, "results": found}
        rate_mbits //= 2


@contextlib.contextmanager
def idle_time():
    """Afterwards the value, called, is the idle share of the processors' time in between."""
    idle, _, begun = ticks()
    ended = []
    yield lambda: (ended[0] - idle) / (ended[2] - begun)
    ended.extend(ticks())


def percent(value):
    return "-" if value is None else f"{100 * value:.0f} %"


def number(value):
    return "-" if value is None else f"{value:.0f}"


def megabytes(value):
    return "-" if value is None else f"{value / 1e6:.1f}"


def table(title, head, lines):
    """In a long table, columns in which all lines are the same stand above it."""
    same = [len(lines) >= LONG and len(set(column)) == 1 for column in zip(*lines)] or [False] * len(head)
    above = ", ".join(f"{name} {value}" for name, value, out in zip(head, lines[0], same) if out) if any(same) else ""

    def row(cells):
        return "| " + " | ".join(cell for cell, out in zip(cells, same) if not out) + " |"

    return [f"### {title}", *([f"In all lines: {above}.", ""] if above else []), row(head), "|" + "---|" * same.count(False), *map(row, lines), ""]


def good(found, rows):
    """The results of these rows, of those that were measured."""
    return [found[row.name()] for row in rows if "error" not in found.get(row.name(), {"error": ""})]


def bytes_of(size):
    """ "2KiB" as a number."""
    for unit, factor in (("KiB", 1 << 10), ("MiB", 1 << 20), ("B", 1)):
        if size.endswith(unit):
            return int(size.removesuffix(unit)) * factor
    raise ValueError(size)


def draw(file, panels, x, y, x_log=False, y_log=False, names=()):
    """An SVG with a panel for each {title: {line: [(x, y), ...]}}, all with the same axes and one legend. `names`: their colours'
    order, so that plots with fewer lines have the same colours."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "fanin", "font.size": 9})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(panels), figsize=(3.2 * len(panels) + 1.4, 3), sharey=True, squeeze=False, layout="constrained")
    handles = {}
    for axis, (title, lines) in zip(axes[0], panels.items()):
        for name, points in lines.items():
            handles[name] = axis.plot(*zip(*points), marker="o", markersize=3, color=f"C{(list(names) or list(lines)).index(name)}")[0]
        axis.set(title=title, xlabel=x, xscale="log" if x_log else "linear", yscale="log" if y_log else "linear")
        axis.grid(alpha=0.3)
        if x_log:
            ticks = sorted({point[0] for points in lines.values() for point in points})
            axis.set_xticks(ticks, [size_text(tick) for tick in ticks])
            axis.minorticks_off()
    axes[0][0].set_ylabel(y)
    if not y_log:
        axes[0][0].set_ylim(bottom=0)
    axes[0][-1].legend(handles.values(), handles.keys(), loc="upper left", bbox_to_anchor=(1.02, 1))
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None}, bbox_inches="tight")
    pyplot.close(figure)


def size_text(value):
    for factor, unit in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if value >= factor and value % factor == 0:
            return f"{value // factor} {unit}"
    return f"{value:g}"
