"""./dev evidence: what it does with rows, without measuring."""

import json
import os
import sys
from dataclasses import asdict

import pytest
from evidence import __main__ as evidence
from evidence import figures, gigabit, log_normal, rails, shaping, simulation, two_stage
from evidence.common import LONG, table
from evidence.shaping import Row

ROWS = [Row("buffers", "2x2", "none"), Row("buffers", "2x2", "tokens", "32KiB"),
        Row("latency", "2x2", "random", size="200B", trigger="1kHz")]
OTHERS = [Row("duplex", "4x4", "none", more="--full-duplex"),
          Row("throttled", "4x4", "tokens", more="--throttle 10% --no-baselines"),
          Row("buffers", "8x8", "none", size="2KiB", sigma="2KiB")]


class Testbeds:
    """In place of the real one: what was asked for."""

    __test__ = False  # for pytest
    made = []

    def __init__(self, folder):
        self.environment = {"FANIN_TESTBED": str(folder)}

    def need(self, words):
        Testbeds.made.append(words)

    def down(self):
        Testbeds.made.append("down")

    def congestion_control(self):
        return "cubic"


@pytest.fixture
def tool(monkeypatch, tmp_path):
    """Runs it with a bench that answers so much idle time, one after the other."""
    monkeypatch.setattr(evidence, "Testbed", Testbeds)
    monkeypatch.setattr(evidence, "conditions", lambda fanin: {"date": "2026-11-26", "commit": "0123456789ab", "machine": "some CPU"})
    monkeypatch.setattr(shaping, "rows", lambda: iter(ROWS))
    Testbeds.made = []
    benches = []

    def run(*words, idle=(0.5,), fails=False, more=()):
        answers = list(idle)

        def bench(command, environment):
            benches.append(command)
            if fails:
                raise RuntimeError("no testbed here")
            share = answers.pop(0) if len(answers) > 1 else answers[0]
            evb = {"what": "evb", "ratio_to_link": 0.9, "ratio_to_nxn": 0.98, "idle_cpu": share, "loaded": share < 0.25, "switch_drops": 7,
                   "retransmitted": 3, "p50_us": 100}
            return {"results": [{"what": "nxn", "ratio_to_link": 0.92, "idle_cpu": share}, evb, *more]}

        monkeypatch.setattr(shaping, "run_json", bench)
        monkeypatch.setattr(shaping, "plots", lambda found, folder: ["a.svg"])
        monkeypatch.setattr(sys, "argv", ["evidence", "fanin", str(tmp_path), "shaping", *words])
        with pytest.raises(SystemExit) as ended:
            evidence.main()
        return ended.value.code

    run.benches = benches
    run.rows = lambda: evidence.Store(tmp_path).read()
    return run


def test_each_row_is_measured_once_and_written(tool):
    assert tool() == 0
    assert tool.benches == [[os.path.abspath("fanin"), "bench", "evb", *row.bench(), "--quiet", "--json", "-"] for row in ROWS]
    assert tool.rows()[ROWS[0].name()]["results"]["evb"]["switch_drops"] == 7
    assert Testbeds.made[-1] == "down"
    assert tool() == 0 and len(tool.benches) == 3, "it was measured before"
    assert tool("--restart") == 0 and len(tool.benches) == 6


def test_rows_that_failed_are_measured_again(tool):
    assert tool(fails=True) == 1
    assert tool.rows()[ROWS[0].name()]["error"] == "no testbed here"
    assert tool() == 0
    assert all("error" not in row for row in tool.rows().values())


def test_no_row_begins_when_the_time_is_over(tool):
    assert tool("--minutes", "0.5") == 1
    assert tool.benches == []


def test_what_a_kill_has_left_of_a_row_is_measured_again(tool, tmp_path):
    tool()
    file = tmp_path / "rows.jsonl"
    file.write_text(file.read_text()[:-40])
    assert tool() == 0 and tool.benches[-1][3:-3] == ROWS[-1].bench() and len(tool.benches) == 4


def test_rows_of_another_version_are_measured_again(tool, tmp_path):
    tool()
    file = tmp_path / "rows.jsonl"
    file.write_text(file.read_text().replace(f'"version": {evidence.VERSION}', '"version": 0', 1))
    assert tool() == 0 and len(tool.benches) == 4


def test_a_row_without_idle_time_is_measured_again_with_slower_links(tool):
    assert tool(idle=(0.1, 0.2, 0.5)) == 0
    assert tool.rows()[ROWS[0].name()]["measured_mbits"] == 25
    assert [words[2] for words in Testbeds.made[:3]] == ["100Mb/s", "50Mb/s", "25Mb/s"]
    assert tool("--restart", idle=(0.1,)) == 0
    assert tool.rows()[ROWS[0].name()]["measured_mbits"] == 12, "there is an end"
    assert tool.rows()[ROWS[2].name()]["measured_mbits"] == 100, "with a trigger the links are not what costs"


def test_the_tables_are_recorded_between_marks(tool, tmp_path):
    document = tmp_path / "shaping.md"
    tool("--minutes", "0.5", "--record", str(document))
    assert "3 rows are not measured" in document.read_text()
    document.write_text("before\n" + document.read_text() + "after\n")
    assert tool("--record", str(document)) == 0
    text = document.read_text()
    assert text.startswith("before\n") and text.endswith("<!-- end of evidence shaping -->\nafter\n"), text
    assert "\n2026-11-26, commit 0123456789ab: some CPU; congestion control cubic.\n" in text and "not measured" not in text, text
    assert "| 2x2 | tokens | 32KiB | 16KiB | 9000 | 100 Mb/s | 92 % | 90 % | 98 % | 50 % | 7 | 3 | none |" in text, text
    assert "| 1kHz | 200B | random | 100 | - | - | 50 % | none |" in text, text


def test_full_duplex_and_a_slow_builder_unit_have_tables_of_their_own(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(shaping, "rows", lambda: iter(OTHERS))
    both = {"what": "full duplex", "ratio_to_link": 0.88, "ratio_to_apart": 0.97, "idle_cpu": 0.4, "loaded": False}
    slow = {"what": "throttled", "cpu_before": 0.1, "cpu_quota": 0.01, "cpu_throttled": 0.0098, "ratio_of_others": 0.96, "idle_cpu": 0.2,
            "loaded": True}
    document = tmp_path / "shaping.md"
    assert tool("--record", str(document), more=(both, slow)) == 0
    text = document.read_text()
    assert "| 4x4 | none | 12 Mb/s, too little idle time | 90 % | 88 % | 97 % | 40 % | none |" in text, "the least idle time counts"
    assert "| 4x4 | tokens | 12 Mb/s, too little idle time | 0.1000 | 0.0100 | 0.0098 | 96 % | 20 % | none |" in text, text
    assert "| 8x8 | none | 128KiB | 2KiB, log-normal | 9000 |" in text, text


def test_two_rails_are_compared_with_one():
    row = next(rails.rows())
    rail = {"bytes_per_s": 24.8e6, "idle_cpu": 0.9}
    pair = {"bytes_per_s": 48e6, "ratio_to_one_rail": 1.935, "idle_cpu": 0.9, "remark": "a remark"}
    found = {row.name(): asdict(row) | {"measured_mbits": 100, "results": {"one rail": rail, "evb": pair}}}
    assert "| 2x2 | none | 100 Mb/s | 24.8 | 48.0 | 1.94 | 90 % | a remark |" in rails.tables(found)
    assert row.bench()[-4:] == ["--sources", "2", "--rails", "2"] and row.testbed(100)[-2:] == ["--rails", "2"]


def test_hosts_hand_no_more_than_a_carrier_to_their_links():
    def gso(row):
        words = row.testbed(100)
        return words[words.index("--gso") + 1]

    assert gso(Row("buffers", "2x2", "none")) == f"{24 << 10}B" and gso(Row("rails", "2x2", "none", rails=2)) == f"{12 << 10}B"
    assert gso(Row("buffers", "8x8", "none")) == "9000B", "one packet at least"


def test_options_of_rows_are_those_of_the_bench():
    words = OTHERS[1].bench()
    assert words[-3:] == ["--throttle", "10%", "--no-baselines"] and OTHERS[2].bench()[-2:] == ["--fragment-sigma", "2KiB"], words
    words = ROWS[2].bench()
    assert "--shaping-window" in words and "--shaping-window" not in ROWS[0].bench(), "none has no window"
    assert words[words.index("--rate"):] == ["--rate", "1kHz", "--readout-buffer", "256MiB"], "what a high rate needs"


def test_all_rows_differ_and_fit_into_an_hour():
    for which in (shaping, log_normal):
        names = [row.name() for row in which.rows()]
        assert len(set(names)) == len(names)
        assert json.loads(json.dumps(names)) == names
        seconds = sum(7 if row.trigger else 3 * (int(row.duration[:-1]) + 1) + 4 + (6 if row.more else 0) for row in which.rows())
        assert seconds < 45 * 60, "three contenders, a testbed; and some are measured twice"


def test_other_sets_have_tables_and_differ():
    for which in (gigabit, two_stage, log_normal, rails):
        names = [row.name() for row in which.rows()]
        assert len(set(names)) == len(names)
        assert which.tables({}), "before anything is measured, too"


def test_a_stage_is_compared_with_two():
    one = {"events_per_s": 100.0, "bytes_per_s": 5e6, "idle_cpu": 0.5, "mbits": 100}
    two = one | {"events_per_s": 46.5, "mbits": 50}
    found = {row.name(): asdict(row) | {"results": one if row.stages == "one" else two} for row in two_stage.rows()}
    assert "| 2KiB | 100 | 5.0 | 100 Mb/s | 50 % | 46 | 5.0 | 50 Mb/s | 50 % | 93 % |" in two_stage.tables(found)


def test_the_size_of_a_run_of_two_stages_is_whole_blocks():
    for size in two_stage.SIZES:
        assert two_stage.events(size) % (2 * two_stage.BLOCK) == 0


def test_a_builder_unit_s_work_is_said():
    cpu = [{"name": "evm", "cpu": 0.5}, {"name": "bu0", "cpu": 0.061}, {"name": "bu1", "cpu": 0.05}]
    row = next(row for row in gigabit.rows() if row.arrangement == "work")
    found = {row.name(): asdict(row) | {"results": {"evb": {"bytes_per_s": 128e6, "processes": cpu}}}}
    assert "A builder unit that builds 64.0 MB/s takes 6.1 % of a core." in gigabit.tables(found)


def test_plots_have_a_line_for_each_policy(tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(shaping, "draw", lambda file, panels, *axes, **scales: drawn.update({file.name: panels}))
    for which, name in ((shaping, "shaping"), (log_normal, "log-normal")):
        found = {row.name(): asdict(row) | {"results": {"evb": {"ratio_to_link": 0.9, "p50_us": 100, "p99_us": 200, "p999_us": 300}}}
                 for row in which.rows()}
        assert set(which.plots(found, tmp_path)) <= set(drawn)
        assert drawn[f"{name}-buffers.svg"]["4x7"]["tokens"] == [(32768, 90), (131072, 90), (524288, 90)]
        assert [x for line in drawn[f"{name}-nodes.svg"].values() for x, _ in line["linear-shift"]] == list(range(1, 8))
    assert drawn["shaping-latency.svg"]["2 KiB, log-normal, p99"]["none"] == [(100, 0.2), (1000, 0.2), (10800, 0.2)]


def test_a_figure_without_a_result_is_left_out_and_the_others_are_tables_and_drawings(tmp_path):
    assert figures.tables({}) == [] and figures.plots({}, tmp_path) == []
    rate = {"size_bytes": 1024, "bytes_per_s": 1.5e9, "per_node_bytes_per_s": 11e6}
    moments = [{"at_s": at, "bytes_per_s": 1e8 if at <= 2 else 9e7, "cpu": 0.5, "side_load_cpu": float(at > 2)} for at in range(1, 7)]
    found = {"nxn": {"results": [{"what": "raw", **rate}, {"what": "fanin", **rate, "bytes_per_s": 1.47e9}], "drawing": "<svg/>"},
             "receive": {"results": [{"what": "evb", **rate, "events_per_s": 2720.0, "reaches_requirement": True}], "drawing": "<svg/>"},
             "side-load": {"results": [], "drawing": "<svg/>", "timeline": {
                 "side_load_from_s": 2, "moments": moments, "sampling": {"cpu": 0.001}, "sensors": {"power_w": {"text": "not available"}}}}}
    lines = figures.tables(found)
    assert "| 1 Ki | 1.5 | - | 1.47 | 98 % |" in lines
    assert "| 1 Ki | 2.72 | 11.0 | - | yes |" in lines
    assert "| beside the other work | 90.0 | 0.50 | 1.00 |" in lines
    assert "Sampling once a second took 0.10 % of a core. Sensors: power: not available." in lines
    assert figures.plots(found, tmp_path) == ["nxn.svg", "receive.svg", "side-load.svg"]
    assert (tmp_path / "receive.svg").read_text() == "<svg/>"


def test_what_is_the_same_in_all_lines_of_a_long_table_stands_above_it():
    short, long = ([[str(n), "9000"] for n in range(count)] for count in (2, LONG))
    assert table("A", ["nodes", "MTU"], short) == ["### A", "| nodes | MTU |", "|---|---|", "| 0 | 9000 |", "| 1 | 9000 |", ""]
    assert table("A", ["nodes", "MTU"], long)[:5] == ["### A", "In all lines: MTU 9000.", "", "| nodes |", "|---|"]
    assert table("A", ["nodes"], []) == ["### A", "| nodes |", "|---|", ""]


def test_what_is_simulated_needs_no_testbed_and_each_table_shows_what_there_is(tmp_path):
    rows = list(simulation.rows())
    assert len({row.name() for row in rows}) == len(rows)
    assert all((simulation.EXAMPLES / f"{row.file}.toml").exists() for row in rows)
    assert simulation.tables({}), "nothing is there yet"
    assert simulation.changed("1KiB", 0.75) == "768B" and simulation.changed("14us", 1.25) == "17500ns"
    assert simulation.changed("input-fifo", 0.75) is None
    row = simulation.Row("fed", "fed-builder", "uniform", ("traffic.destinations=round-robin,random",))
    point = {"point": {"traffic.destinations": "random"}, "saturation": 0.5, "per_node_bytes_per_s": 2e8}
    found = {row.name(): {**asdict(row), "points": [point]}}
    assert "| random | over 200, about 50 % | 200.0, 50.00 % |" in simulation.tables(found)
