"""What shaping does on the testbed (Moser 2007, tables V and VI, figure 13): ./dev evidence shaping."""

from dataclasses import asdict, dataclass

from evidence.common import IDLE_LEAST, bytes_of, draw, good, number, percent, run_json, table, with_idle_time

POLICIES = ["none", "random", "linear-shift", "barrel-shifter", "tokens"]
RECOMMENDED = "linear-shift"  # the one that is followed over all N x N
WINDOW = {"32KiB": "32KiB", "128KiB": "96KiB", "512KiB": "96KiB"}  # of the shaping, for each buffer of the switch
CARRIERS = 2  # of each connection: at least so many fit into the window
NEARLY_FULL = "10.8kHz"  # events of 2 KiB from each readout unit: 90 % of a link of 200 Mb/s


@dataclass(frozen=True)
class Row:
    table: str
    nodes: str
    policy: str
    buffer: str = "128KiB"
    mtu: int = 9000
    rate_mbits: int = 100  # of the links
    size: str = "16KiB"
    trigger: str = ""  # empty: as fast as possible, beside one stream and nxn
    sigma: str = ""  # of log-normal sizes with that mean; empty: all are equal
    rails: int = 1
    duration: str = "5s"
    more: str = ""  # an option of the bench

    def name(self):
        return "/".join(str(value) for value in asdict(self).values())

    def testbed(self, rate_mbits):
        return [self.nodes, "--rate", f"{rate_mbits}Mb/s", "--switch-buffer", self.buffer, "--mtu", str(self.mtu), "--gso",
                f"{max(self.mtu, self.carrier())}B", "--rails", str(self.rails)]

    def carrier(self):
        """What fanin chooses for this window."""
        return bytes_of(WINDOW[self.buffer]) // (int(self.nodes.partition("x")[0]) * self.rails * CARRIERS) // 1024 * 1024

    def bench(self):
        fixed = ["--testbed", "--nodes", self.nodes, "--fragment-size", self.size, "--shaping", self.policy, "--runs", "1",
                 "--duration", self.duration, "--stolen-max", "100", "--wait", "block"]
        window = ["--shaping-window", WINDOW[self.buffer]] if self.policy != "none" else []
        trigger = ["--rate", self.trigger, "--readout-buffer", "256MiB"] if self.trigger else []  # of what is held at that rate
        rails = ["--sources", str(self.rails), "--rails", str(self.rails)] if self.rails > 1 else []
        return [*fixed, *window, *trigger, *(["--fragment-sigma", self.sigma] if self.sigma else []), *rails, *self.more.split()]


def rows():
    """In an order in which few testbeds have to be made."""
    for nodes in ("8x8", "4x7", "7x4"):
        for buffer in ("32KiB", "128KiB", "512KiB"):
            yield from (Row("buffers", nodes, policy, buffer) for policy in POLICIES)
    for units in range(1, 8):
        yield from (Row("nodes", f"{units}x{units}", policy) for policy in ("none", RECOMMENDED, "barrel-shifter"))
    for mtu in (1500, 7000, 9000):
        yield from (Row("mtu", "4x4", policy, mtu=mtu, rate_mbits=50) for policy in ("none", RECOMMENDED))
    yield from (Row("duplex", "4x4", policy, more="--full-duplex") for policy in ("none", RECOMMENDED))
    yield from (Row("throttled", "4x4", policy, more="--throttle 10% --no-baselines") for policy in POLICIES)
    for size, sigma, trigger in (("2KiB", "2KiB", "100Hz"), ("2KiB", "2KiB", "1kHz"), ("2KiB", "2KiB", NEARLY_FULL), ("200B", "", "100kHz")):
        yield from (Row("latency", "2x2", policy, rate_mbits=200, size=size, trigger=trigger, sigma=sigma) for policy in POLICIES)


KEYS = ["bytes_per_s", "ratio_to_link", "ratio_to_nxn", "idle_cpu", "retransmitted", "switch_drops", "p50_us", "p99_us", "p999_us",
        "remark", "ratio_to_apart", "ratio_to_one_rail", "cpu_before", "cpu_quota", "cpu_throttled", "ratio_of_others"]


def measure(fanin, row, testbed):
    def bench(rate_mbits):
        testbed.need(row.testbed(rate_mbits))
        result = run_json([fanin, "bench", "evb", *row.bench(), "--quiet", "--json", "-"], testbed.environment)
        return {one["what"]: {key: one[key] for key in KEYS if one.get(key) is not None} for one in result["results"]}

    if row.trigger:  # the rate of the links is not what costs
        return {"measured_mbits": row.rate_mbits, "results": bench(row.rate_mbits)}
    return with_idle_time(row.rate_mbits, bench)


def size(one):
    return one["size"] + (", log-normal" if one["sigma"] else "")


def links(one):
    loaded = any(result.get("idle_cpu", 1) < IDLE_LEAST for result in one["results"].values())
    return f"{one['measured_mbits']} Mb/s" + (", too little idle time" if loaded else "")


def remarks(one):
    return "; ".join(sorted({result["remark"] for result in one["results"].values() if "remark" in result})) or "none"


def throughput_line(one):
    nxn, evb = one["results"].get("nxn", {}), one["results"]["evb"]
    return [one["nodes"], one["policy"], one["buffer"], size(one), str(one["mtu"]), links(one),
            percent(nxn.get("ratio_to_link")), percent(evb.get("ratio_to_link")), percent(evb.get("ratio_to_nxn")),
            percent(evb.get("idle_cpu")), number(evb.get("switch_drops")), number(evb.get("retransmitted")), remarks(one)]


def latency_line(one):
    evb = one["results"]["evb"]
    return [one["trigger"], size(one), one["policy"], *(number(evb.get(key)) for key in ("p50_us", "p99_us", "p999_us")),
            percent(evb.get("idle_cpu")), remarks(one)]


def duplex_line(one):
    evb, both = one["results"]["evb"], one["results"]["full duplex"]
    return [one["nodes"], one["policy"], links(one), percent(evb.get("ratio_to_link")), percent(both.get("ratio_to_link")),
            percent(both.get("ratio_to_apart")), percent(both.get("idle_cpu")), remarks(one)]


def throttled_line(one):
    row = one["results"]["throttled"]
    return [one["nodes"], one["policy"], links(one), *(f"{row[key]:.4f}" for key in ("cpu_before", "cpu_quota", "cpu_throttled")),
            percent(row.get("ratio_of_others")), percent(row.get("idle_cpu")), remarks(one)]


THROUGHPUT = ["nodes", "shaping", "buffer of a port", "fragment", "MTU", "links", "nxn of the links", "event building of the links", "of nxn", "idle CPU",
              "packets dropped", "segments sent again", "remarks"]
DUPLEX = ["nodes", "shaping", "links", "each on a host of its own, of the links", "two on a host, each direction, of the links", "of the former",
          "idle CPU", "remarks"]
THROTTLED = ["nodes", "shaping", "links", "cores of a builder unit", "held to", "then", "rate of the others, of before", "idle CPU",
             "remarks"]
LATENCY = ["trigger", "fragment", "shaping", "p50 (us)", "p99 (us)", "p99.9 (us)", "idle CPU", "remarks"]
TABLES = {"buffers": ("Buffers of the switch", THROUGHPUT, throughput_line),
          "nodes": ("N x N", THROUGHPUT, throughput_line),
          "mtu": ("Largest packet", THROUGHPUT, throughput_line),
          "duplex": ("A readout and a builder unit on each host", DUPLEX, duplex_line),
          "throttled": ("One builder unit held to a tenth of its processor time", THROTTLED, throttled_line),
          "latency": ("From trigger to commit, 2 x 2", LATENCY, latency_line)}


def headline(measured):
    return percent(measured["results"]["evb"].get("ratio_to_link")) if "evb" in measured["results"] else "measured"


def tables(found):
    return [line for name, (title, head, cells) in TABLES.items()
            for line in table(title, head, [cells(one) for one in good(found, [row for row in rows() if row.table == name])])]


def of_links(one):
    return 100 * one["results"]["evb"]["ratio_to_link"]


def by_policy(results, x, y, **only):
    """Lines of a plot: the points of each policy."""
    picked = [one for one in results if all(one[key] == value for key, value in only.items())]
    return {policy: sorted((x(one), y(one)) for one in picked if one["policy"] == policy)
            for policy in POLICIES if any(one["policy"] == policy for one in picked)}


def draw_buffers(file, results):
    draw(file, {nodes: by_policy(results, lambda one: bytes_of(one["buffer"]), of_links, nodes=nodes) for nodes in ("8x8", "4x7", "7x4")},
         "buffer of a port of the switch (B)", "event building, % of the links", x_log=True, names=POLICIES)


def draw_nodes(file, title, results):
    draw(file, {title: by_policy(results, lambda one: int(one["nodes"].split("x")[0]), of_links)},
         "N readout and N builder units", "event building, % of the links", names=POLICIES)


def plots(found, folder):
    """Draws them; the names of the files."""
    def of_table(name):
        return good(found, [row for row in rows() if row.table == name])

    draw_buffers(folder / "shaping-buffers.svg", of_table("buffers"))
    draw_nodes(folder / "shaping-nodes.svg", "16 KiB", of_table("nodes"))
    draw(folder / "shaping-latency.svg",
         {f"2 KiB, log-normal, {title}": by_policy(of_table("latency"), lambda one: hertz(one["trigger"]),
                                                   lambda one: one["results"]["evb"][key] / 1000, sigma="2KiB")
          for title, key in (("p50", "p50_us"), ("p99", "p99_us"), ("p99.9", "p999_us"))},
         "trigger (Hz)", "trigger to commit (ms)", x_log=True, names=POLICIES)
    return ["shaping-buffers.svg", "shaping-nodes.svg", "shaping-latency.svg"]


def hertz(rate):
    return float(rate.removesuffix("kHz")) * 1000 if rate.endswith("kHz") else float(rate.removesuffix("Hz"))
