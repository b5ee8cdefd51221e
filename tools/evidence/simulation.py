"""What papers measured or calculated on networks, simulated: ./dev evidence simulation.

Nothing here is measured on a machine but the wall time and memory of the simulation itself.
"""

import re
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

from evidence.common import good, megabytes, run_json, table

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples" / "sim"
PATIENCE_S = 1800  # for one row
CHANGES = (0.75, 1.25)  # of a value that is assumed

KAROL = {"1": 100, "2": 75.0, "3": 68.25, "4": 65.53, "5": 63.99, "6": 63.02, "7": 62.34, "8": 61.84}
MYRINET_PAIR = {("stream", "1"): 235.01, ("stream", "2"): 469.14, ("roundtrip", "1"): 465.98, ("roundtrip", "2"): 649.90}
TABLE_V = {"1": [233.46, 192.16, 157.05, 137.23, 123.33, 110.33, 102.00], "2": [465.66, 346.06, 289.47, 263.11, 224.63, 209.64, 199.18]}
TABLE_VI = {"1": [242.16, 191.96, 154.08, 129.28, 109.74, 93.71, 79.04], "2": [484.63, 338.03, 277.19, 231.83, 191.36, 164.29, 141.60]}
GEOFFRAY = {"static": "38 %", "adaptive": "77 %"}
TESTBED = {"linear-shift": [98, 98, 99, 98, 99, 98, 99, 98], "barrel-shifter": [98, 98, 99, 97, 98, 99, 98, 97]}  # docs/benchmarks.md
POLICIES = "none,random,linear-shift,tokens,barrel-shifter"


@dataclass(frozen=True)
class Row:
    """One sweep."""

    table: str
    file: str
    traffic: str  # empty: the event builder
    sweep: tuple = ()  # "KEY=LIST"
    settings: tuple = ()  # "KEY=VALUE"

    def name(self):
        return "/".join(" ".join(value) if isinstance(value, tuple) else value for value in asdict(self).values())

    def words(self):
        return [str(EXAMPLES / f"{self.file}.toml"), *(["--traffic", self.traffic] if self.traffic else []),
                *(word for one in self.sweep for word in ("--sweep", one)), *(word for one in self.settings for word in ("--set", one))]


def rows():
    yield Row("crossbar", "crossbar", "uniform", ("fabric.nodes=1..8,128",))
    yield Row("crossbar-others", "crossbar", "uniform", settings=("fabric.nodes=8", "traffic.size_sigma=1000B"))
    yield Row("crossbar-others", "crossbar", "uniform", settings=("fabric.nodes=8", "traffic.destinations=round-robin"))
    yield from BARREL.values()
    yield Row("pair", "myrinet-pair", "stream", ("fabric.ports=1,2", "traffic.size=64B,1KiB,16KiB,1MiB"))
    yield Row("pair", "myrinet-pair", "roundtrip", ("fabric.ports=1,2", "traffic.size=64B,1KiB,16KiB,1MiB"))
    yield from CLOS.values()
    yield Row("fed", "fed-builder", "uniform", ("traffic.destinations=round-robin,random",))
    yield Row("fdr", "fdr-clos", "uniform", ("fabric.routing=table,static", "fabric.nodes=1,2,3,12,24,36,48,60"))
    yield Row("pairs", "clos-512", "roundtrip", ("fabric.routing=static,adaptive,table,dispersive",))
    yield Row("testbed", "testbed", "", ("shaping.policy=linear-shift,barrel-shifter", "fabric.nodes=1..8"))
    yield Row("testbed-stream", "testbed", "stream", settings=("fabric.nodes=1",))
    yield from changed_rows()
    yield from (Row("lhcb", "lhcb-500", "", settings=(f"shaping.policy={policy}",)) for policy in POLICIES.split(","))
    yield Row("cms", "cms-1024", "")
    yield from (Row("speed", "crossbar", "uniform", settings=(f"fabric.nodes={nodes}", f"fabric.buffer={buffer}"))
                for nodes in (8, 64, 512) for buffer in ("1MiB", "2kB"))


LOG_NORMAL = "source.size_sigma=2KiB"
ON_CLOS = ("fabric.topology=clos", "fabric.routing=table")
N_X_N = "fabric.nodes=1,2,4,8,16,32,64"
BARREL = {
    "barrel-shifter": Row("barrel", "barrel", "", (N_X_N,)),
    "its nxn": Row("barrel", "barrel", "nxn", (N_X_N,)),
    "linear-shift": Row("barrel", "barrel", "", (N_X_N,), ("shaping.policy=linear-shift",)),
    "random": Row("barrel", "barrel", "", (N_X_N,), ("shaping.policy=random",)),
    "none": Row("barrel", "barrel", "", (N_X_N,), ("shaping.policy=none",)),
    "barrel-shifter, log-normal": Row("barrel", "barrel", "", (N_X_N,), (LOG_NORMAL,)),
    "linear-shift, log-normal": Row("barrel", "barrel", "", (N_X_N,), (LOG_NORMAL, "shaping.policy=linear-shift")),
    "none, log-normal": Row("barrel", "barrel", "", (N_X_N,), (LOG_NORMAL, "shaping.policy=none")),
    "barrel-shifter, Clos": Row("barrel", "barrel", "", (N_X_N,), ON_CLOS),
    "barrel-shifter, log-normal, Clos": Row("barrel", "barrel", "", (N_X_N,), (*ON_CLOS, LOG_NORMAL)),
}
BOTH_PORTS = ("fabric.ports=1,2", "fabric.nodes=1..7")
CLOS = {
    "in turns": Row("clos", "myrinet-clos", "uniform", BOTH_PORTS),
    "random": Row("clos", "myrinet-clos", "uniform", BOTH_PORTS, ("traffic.destinations=random",)),
    "nxn": Row("clos", "myrinet-clos", "nxn", BOTH_PORTS),
    "event builder": Row("clos", "myrinet-clos", "", BOTH_PORTS),
}
# One point of each file, of which values are assumed.
CHANGED = {
    "myrinet-pair": ("roundtrip", ("fabric.ports=2", "traffic.size=16KiB")),
    "myrinet-clos": ("uniform", ("fabric.ports=1", "fabric.nodes=4")),
    "fed-builder": ("uniform", ()),
    "fdr-clos": ("uniform", ("fabric.nodes=24",)),
    "barrel": ("", ("fabric.nodes=16",)),
    "testbed": ("", ("fabric.nodes=4",)),
}


def changed(value, factor):
    """ "4KiB" times a factor, in whole units of a smaller kind."""
    found = re.fullmatch(r"(\d+)\s*(\D*)", str(value))
    if not found:
        return None
    amount, unit = int(found[1]) * factor, found[2]
    for larger, smaller, step in (("MiB", "KiB", 1024), ("KiB", "B", 1024), ("kB", "B", 1000), ("us", "ns", 1000), ("ms", "us", 1000),
                                  ("Gb/s", "Mb/s", 1000), ("Mb/s", "kb/s", 1000)):
        if unit == larger and amount != int(amount):
            amount, unit = amount * step, smaller
    return f"{round(amount)}{unit}"


def assumed(file):
    """(key, value) of what a file assumes or fits and what has an amount."""
    parsed = tomllib.loads((EXAMPLES / f"{file}.toml").read_text())
    return [(f"{part}.{key}", parsed[part][key]) for part in ("fabric", "traffic") if part in parsed
            for key, origin in parsed[part].get("origin", {}).items()
            if not origin.startswith("published") and key in parsed[part] and changed(parsed[part][key], 1)]


def changed_rows():
    for file, (traffic, settings) in CHANGED.items():
        yield Row("changed", file, traffic, settings=settings)
        for key, value in assumed(file):
            values = ",".join(changed(value, factor) for factor in CHANGES)
            yield Row("changed", file, traffic, (f"{key}={values}",), settings)


KEYS = ("point", "saturation", "per_node_bytes_per_s", "latency_us", "virtual_s", "wall_s", "network_events", "network_events_per_s",
        "packets_dropped", "messages")


def measure(fanin, row, testbed):
    result = run_json([fanin, "sim", *row.words(), "--quiet", "--json", "-"], None, PATIENCE_S)
    return {"points": [{key: one[key] for key in KEYS if one.get(key) is not None} for one in result["results"]],
            "peak_rss_bytes": result["peak_rss_bytes"]}


def headline(measured):
    return ", ".join(shown(one) for one in measured["points"])


def shown(point):
    return f"{100 * point['saturation']:.2f} %"


def of_table(found, name):
    return good(found, [row for row in rows() if row.table == name])


def points(found, row, key):
    """Of this row, by the value of a key of its sweep."""
    return {one["point"][key]: one for measured in good(found, [row]) for one in measured["points"]}


def off(simulated, published):
    return f"{simulated:.1f} ({100 * (simulated / published - 1):+.0f} %)"


def tables(found):
    made = [crossbar_table(found), barrel_table(found), pair_table(found), *clos_tables(found), fed_table(found), fdr_table(found),
            pairs_table(found), testbed_table(found), changed_table(found), lhcb_table(found), speed_table(found)]
    return [line for lines in made for line in lines]


def crossbar_table(found):
    lines = [[nodes, f"{KAROL[nodes]:.2f} %" if nodes in KAROL else "58.81 % (own model)", shown(one)] for measured in of_table(found, "crossbar") for one in measured["points"]
             for nodes in [one["point"]["fabric.nodes"]]]
    names = ("8, log-normal", "8, in turns"), ("53.6 % (own model)", "100 % (own model)")
    others = [[name, published, shown(measured["points"][0])]
              for name, published, measured in zip(*names, of_table(found, "crossbar-others"))]
    return table("A crossbar with input FIFOs", ["N", "published", "simulated"], lines + others)


def barrel_table(found):
    columns = {name: points(found, row, "fabric.nodes") for name, row in BARREL.items()}
    lines = [[nodes, *(shown(column[nodes]) if nodes in column else "-" for column in columns.values())]
             for nodes in N_X_N.partition("=")[2].split(",")]
    return table("A barrel shifter", ["N x N", *columns], lines)


def pair_table(found):
    lines = []
    for measured in of_table(found, "pair"):
        for one in measured["points"]:
            ports, size = one["point"]["fabric.ports"], one["point"]["traffic.size"]
            published = MYRINET_PAIR[measured["traffic"], ports] if size == "16KiB" else None
            lines.append([measured["traffic"], ports, size, f"{published:.1f}" if published else "-",
                          off(one["per_node_bytes_per_s"] / 1e6, published) if published else megabytes(one["per_node_bytes_per_s"])])
    return table("Two computers with Myrinet, MB/s", ["traffic", "ports", "message", "published", "simulated"], lines)


def clos_tables(found):
    by_ports = {name: {(one["point"]["fabric.ports"], one["point"]["fabric.nodes"]): one["per_node_bytes_per_s"] / 1e6
                       for measured in good(found, [row]) for one in measured["points"]}
                for name, row in CLOS.items()}
    for title, published, names in (("Table V", TABLE_V, ("in turns", "random", "nxn")), ("Table VI", TABLE_VI, ("event builder",))):
        lines = [[ports, str(i + 1), f"{value:.1f}", *(off(by_ports[name][ports, str(i + 1)], value) if (ports, str(i + 1)) in by_ports[name]
                                                       else "-" for name in names)]
                 for ports, values in published.items() for i, value in enumerate(values)]
        yield table(f"A Myrinet Clos network, MB/s a node: {title}", ["ports", "N", "published", *names], lines)


def fed_table(found):
    lines = [[one["point"]["traffic.destinations"], "over 200, about 50 %", f"{megabytes(one['per_node_bytes_per_s'])}, {shown(one)}"]
             for measured in of_table(found, "fed") for one in measured["points"]]
    return table("FED builder, MB/s", ["destinations", "published", "simulated"], lines)


def fdr_table(found):
    rates = {(one["point"]["fabric.routing"], one["point"]["fabric.nodes"]): megabytes(one["per_node_bytes_per_s"])
             for measured in of_table(found, "fdr") for one in measured["points"]}
    lines = [[nodes, rates["table", nodes], rates.get(("static", nodes), "-")] for routing, nodes in rates if routing == "table"]
    return table("An InfiniBand Clos network, MB/s a node", ["N", "by destination", "one route for each pair"], lines)


def pairs_table(found):
    lines = [[routing, GEOFFRAY.get(routing, "-"), shown(one)]
             for measured in of_table(found, "pairs") for one in measured["points"] for routing in [one["point"]["fabric.routing"]]]
    return table("Random pairs over a Clos network", ["routing", "published", "simulated"], lines)


def testbed_table(found):
    stream = [measured["points"][0]["per_node_bytes_per_s"] for measured in of_table(found, "testbed-stream")]
    lines = []
    for measured in of_table(found, "testbed") if stream else []:
        for one in measured["points"]:
            policy, nodes = one["point"]["shaping.policy"], one["point"]["fabric.nodes"]
            lines.append([policy, nodes, f"{TESTBED[policy][int(nodes) - 1]} %", f"{100 * one['per_node_bytes_per_s'] / stream[0]:.0f} %",
                          str(one["packets_dropped"])])
    return table("fanin's testbed, of one stream", ["shaping", "N x N", "measured", "simulated", "packets dropped"], lines)


def changed_table(found):
    lines = []
    for file, (traffic, settings) in CHANGED.items():
        at = ", ".join(one.partition(".")[2] for one in settings)
        as_it_is = good(found, [Row("changed", file, traffic, settings=settings)])
        for key, value in assumed(file) if as_it_is else []:
            wanted = [changed(value, factor) for factor in CHANGES]
            row = Row("changed", file, traffic, (f"{key}={','.join(wanted)}",), settings)
            results = points(found, row, key)
            if results:
                lines.append([file, at, key, str(value), shown(as_it_is[0]["points"][0]),
                              *(shown(results[one]) if one in results else "-" for one in wanted)])
    return table("What a quarter less and more of each assumption does", ["file", "at", "key", "value", "as it is", "-25 %", "+25 %"], lines)


def lhcb_table(found):
    lines = [[file, policy, shown(one), megabytes(one["per_node_bytes_per_s"]), f"{one['virtual_s']:.3g} s", f"{one['wall_s']:.0f} s",
              f"{one['messages'] / one['wall_s'] / 1e6:.2f} M/s", f"{measured['peak_rss_bytes'] / 2**30:.1f} GiB"]
             for name in ("lhcb", "cms") for measured in of_table(found, name) for one in measured["points"]
             for file, policy in [(measured["file"], ", ".join(measured["settings"]).partition("=")[2] or "none")]]
    head = ["file", "shaping", "of the links", "MB/s a node", "virtual", "wall", "messages", "memory"]
    return table("Large networks", head, lines)


def speed_table(found):
    lines = [[*(one.partition("=")[2] for one in measured["settings"]), f"{measured['points'][0]['network_events_per_s'] / 1e6:.1f} M/s"]
             for measured in of_table(found, "speed")]
    return table("Speed of the fabric, on one thread", ["nodes", "buffer", "events"], lines)


def plots(found, folder):
    return []
