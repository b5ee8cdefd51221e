"""What all sets of ./dev evidence have in common: running benches, tables and plots."""

import json
import subprocess

PATIENCE_S = 300  # for one bench


def run_json(command, environment):
    """The result of a command that writes it to its standard output."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"{command[1]} failed")
    return json.loads(done.stdout)


def commit_of(fanin):
    return subprocess.run([fanin, "--version"], capture_output=True, text=True).stdout.partition("commit ")[2].partition(")")[0]


def percent(value):
    return "-" if value is None else f"{100 * value:.0f} %"


def number(value):
    return "-" if value is None else f"{value:.0f}"


def megabytes(value):
    return "-" if value is None else f"{value / 1e6:.1f}"


def table(title, head, lines):
    return [f"### {title}", "| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(line) + " |" for line in lines), ""]


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
