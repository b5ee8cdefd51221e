"""fanin sim as a user calls it: its table, its JSON, and what it says of mistakes."""

import json

import pytest
from fanin_run import SOURCE, Folder, fanin

SIM = SOURCE / "examples/sim"
CROSSBAR = SIM / "crossbar.toml"


def sim(*arguments):
    return fanin("sim", *arguments)


def results(*arguments):
    done = sim(*arguments, "--json", "-", "-q")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_crossbar_with_input_fifos_is_as_theory_says():
    theory = {r["ports"]: r["saturation"] for r in results("--theory", "crossbar")["results"]}
    simulated = results(CROSSBAR, "--traffic", "uniform", "--sweep", "fabric.nodes=1..4")["results"]
    assert [r["point"] for r in simulated] == [{"fabric.nodes": str(n)} for n in (1, 2, 3, 4)]
    for ports, result in enumerate(simulated, 1):
        assert result["saturation"] == pytest.approx(theory[ports], abs=0.005)


def test_the_table_has_a_line_for_each_point_and_says_where_parameters_come_from():
    done = sim(CROSSBAR, "--traffic", "uniform", "--sweep", "fabric.nodes=2", "--set", "traffic.duration=1ms",
               "--sweep", "traffic.size=500B,1000B", "-q")
    assert done.returncode == 0, done.stderr
    assert "published: Karol" in done.stdout
    assert [line.split()[:2] for line in done.stdout.splitlines()[-3:-1]] == [["2", "500B"], ["2", "1000B"]]


# docs/simulation.md has all rows of these tables.
def rates(*arguments):
    return [r["per_node_bytes_per_s"] / 1e6 for r in results(*arguments)["results"]]


def test_two_computers_with_myrinet_reach_what_was_measured():
    pair = SIM / "myrinet-pair.toml"
    sweep = ("--sweep", "fabric.ports=1,2", "--set", "traffic.size=16KiB", "--set", "traffic.duration=100ms")
    assert rates(pair, "--traffic", "stream", *sweep) == pytest.approx([235.01, 469.14], rel=0.01)
    both = rates(pair, "--traffic", "roundtrip", *sweep)
    assert both[0] == pytest.approx(465.98, rel=0.05)
    assert both[1] == pytest.approx(684.85, rel=0.01)  # what the bus gives; 649.90 were measured


def test_a_myrinet_clos_network_reaches_what_was_measured():
    measured = [233.46, 192.16, 157.05, 137.23]
    simulated = rates(SIM / "myrinet-clos.toml", "--traffic", "uniform", "--set", "fabric.ports=1",
                      "--sweep", "fabric.nodes=1..4")
    assert simulated[:2] == pytest.approx(measured[:2], rel=0.01)
    assert simulated == pytest.approx(measured, rel=0.15)


def test_a_fed_builder_is_half_efficient():
    result, = results(SIM / "fed-builder.toml", "--traffic", "uniform")["results"]
    assert result["per_node_bytes_per_s"] > 200e6
    assert result["saturation"] == pytest.approx(0.5, abs=0.1)


def test_an_fdr_clos_network_is_full_to_3_x_3_and_drops():
    fdr = (SIM / "fdr-clos.toml", "--traffic", "uniform", "--set", "traffic.duration=3ms")
    assert rates(*fdr, "--sweep", "fabric.nodes=1..3") == pytest.approx([6200] * 3, rel=0.02)
    drop, = rates(*fdr, "--set", "fabric.nodes=24")
    assert drop < 0.9 * 6200


@pytest.mark.parametrize(("text", "said"), [
    ("[fabric]\nnodes = 9\nswitch_ports = 8\n", "host 8 is not connected"),
    ("[fabric]\nnodes = 2\nrate = \"0Gb/s\"\n", "fabric.rate"),
    ("[fabric]\nnodes = 2\nrate = \"999999999Gb/s\"\n", "rate of a link"),
    ("[fabric]\nnodes = 2\nrate = \"99999GB/s\"\n[traffic]\nsize = \"1B\"\nduration = \"1s\"\n", "virtual time stands still"),
    ("[fabric]\nqueues = \"input-fifo\"\n", "fabric.nodes is missing"),
    ("[fabric]\nnodes = 2\nplacement = \"apart\"\n", "fabric.placement"),
    ("[fabric]\nnodes = 2\nlatency = \"1ms\"\npacket = \"1MiB\"\n", "under way on a link"),
    ("[fabric]\nqueue = \"input-fifo\"\n", "queues"),
])
def test_a_network_that_cannot_be_simulated_is_named_in_one_line(text, said):
    with Folder() as folder:
        done = sim(folder.write("net.toml", text), "--traffic", "uniform", "-q")
    assert done.returncode != 0
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_wrong_options_are_usage_errors():
    for wrong in ([], [CROSSBAR], [CROSSBAR, "--traffic", "x"], [CROSSBAR, "--theory", "crossbar"],
                  [CROSSBAR, "--traffic", "uniform", "--sweep", "fabric.nodes"],
                  [CROSSBAR, "--traffic", "uniform", "--sweep", "fabric.nodes=1", "--set", "fabric.no=1"],
                  ["missing.toml", "--traffic", "uniform"]):
        assert sim(*wrong).returncode in (1, 2), wrong
        assert len(sim(*wrong).stderr.splitlines()) == 1, wrong


def test_every_example_runs_unedited():
    for example in sorted((SOURCE / "examples").rglob("*.toml")):
        if example.parent.name in ("sim", "trapezoidal"):  # they take longer
            continue
        done = results(example)["results"][0]
        assert done["ok"], example
        assert done["events"]["built"] > 0, example


def test_a_run_has_a_line_and_says_what_stands_for_what():
    done = sim(SOURCE / "examples/receive.toml", "-q")
    assert done.returncode == 0, done.stderr
    assert "(receive)" in done.stdout
    assert "payload has no bytes" in done.stdout


def test_a_barrel_shifter_fills_the_links_where_input_fifos_block():
    share = {}
    for policy in ("linear-shift", "barrel-shifter"):
        overrides = ["--set", f"shaping.policy={policy}", "--set", "run.duration=200ms"]
        share[policy] = results(SIM / "barrel.toml", *overrides)["results"][0]["saturation"]
    assert share["barrel-shifter"] > 0.95
    assert share["linear-shift"] < 0.75


def test_several_configurations_are_a_usage_error():
    assert sim(SOURCE / "examples/two-stage/group0.toml", SOURCE / "examples/two-stage/slice0.toml").returncode == 2


def test_a_sweep_is_drawn_and_names_the_busiest_links():
    with Folder() as folder:
        drawing = folder.path / "sweep.svg"
        done = results(CROSSBAR, "--traffic", "uniform", "--set", "traffic.duration=2ms", "--sweep", "fabric.nodes=2,4",
                       "--plot", drawing)["results"]
        assert done[0]["busiest_links"][0]["name"].startswith(("host", "switch"))
        assert 0.5 < done[0]["busiest_links"][0]["share"] <= 1
        assert done[0]["queue_most_bytes"] > 1000
        assert drawing.read_text().startswith("<svg")


def test_a_simulation_above_its_memory_fails():
    done = sim(CROSSBAR, "-q", "--traffic", "uniform", "--set", "traffic.duration=1ms", "--set", "fabric.memory_max=1MiB")
    assert done.returncode == 1
    assert "fabric.memory_max" in done.stderr
    assert "Memory: " in done.stdout


def test_a_simulation_that_needs_more_memory_than_there_is_does_not_begin():
    done = sim(SIM / "cms-1024.toml", "--set", "fabric.memory_max=2GiB")
    assert done.returncode == 1, done.stderr
    assert "fabric.memory_max is 2 GiB" in done.stderr and not done.stdout
    assert "8 KiB for each of 262144 pairs" in done.stderr and "1025 nodes" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_each_pair_uses_all_its_ports_whatever_the_number_of_nodes():
    done = results(SIM / "fed-builder.toml", "--traffic", "uniform", "--sweep", "fabric.nodes=7,8,9", "--set", "traffic.duration=50ms")["results"]
    shares = [r["saturation"] for r in done]
    assert max(shares) - min(shares) < 0.03, shares


def test_rates_of_a_run_that_ends_by_its_events_are_over_its_own_time():
    run = results(SOURCE / "examples/quickstart.toml", "--set", "run.events=1000", "--set", "run.duration=10s")["results"][0]
    assert run["virtual_s"] == pytest.approx(run["duration_s"])
    assert run["per_node_bytes_per_s"] > 1e7


def test_an_origin_is_that_of_the_value_and_of_a_key_that_is_there():
    done = sim(SIM / "fed-builder.toml", "-q", "--traffic", "uniform", "--set", "fabric.rate=10Gb/s", "--set", "traffic.duration=1ms")
    assert "fabric.rate              set on the command line" in done.stdout
    done = sim(SIM / "fed-builder.toml", "-q", "--traffic", "uniform", "--set", "fabric.origin.raet=published")
    assert done.returncode == 2 and "there is no such key in [fabric]" in done.stderr


@pytest.mark.parametrize("wrong", ["fabric.reroute_after=3000h", "fabric.cpu_turn=3000h", "fabric.sink_rate=0.001b/s", "traffic.warm_up=2h"])
def test_absurd_times_and_rates_are_refused(wrong):
    done = sim(SOURCE / "examples/quickstart.toml", "-q", "--set", wrong)
    assert done.returncode == 2 and wrong.partition("=")[0] in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_carriers_go_round_with_a_shaping_policy_and_without_it_they_do_not():
    def saturation(policy):
        return results(SIM / "barrel.toml", "--traffic", "nxn", "--set", "fabric.nodes=8", "--set", "traffic.duration=50ms",
                       "--set", f"shaping.policy={policy}")["results"][0]["saturation"]

    assert saturation("barrel-shifter") > 0.99
    assert saturation("random") < 0.9
    done = sim(SIM / "barrel.toml", "-q", "--traffic", "nxn", "--set", "traffic.size=16KiB")
    assert done.returncode == 2 and "does not fit into a carrier" in done.stderr


def test_message_sockets_run_over_the_simulated_network():
    done = results(CROSSBAR, "--traffic", "nxn", "--sweep", "fabric.nodes=2", "--set", "traffic.size=16KiB",
                   "--set", "traffic.duration=10ms", "--set", "fabric.queues=output")["results"][0]
    assert 0.9 < done["saturation"] <= 1.001


def test_a_point_that_fails_ends_no_other():
    with Folder() as folder:
        done = sim(SOURCE / "examples/quickstart.toml", "-q", "--set", "run.duration=10ms", "--json", folder.path / "o.json",
                   "--sweep", "fabric.rate=10Gb/s,1kB/s,1Gb/s")  # the second one needs hours to end
        written = json.loads((folder.path / "o.json").read_text())["results"]
    assert done.returncode == 1
    assert "fabric.rate=1kB/s" in done.stderr
    assert [r["ok"] for r in written] == [True, False, True]


def test_a_mistake_in_a_source_is_a_usage_error():
    done = sim(SOURCE / "examples/quickstart.toml", "--set", "readout.0.source.0.size_meen=3kB")
    assert done.returncode == 2
    assert "size_meen" in done.stderr


def test_events_that_are_lost_stand_in_the_line():
    done = sim(SOURCE / "examples/quickstart.toml", "-q", "--set", "fabric.latency=100ms", "--set", "run.duration=1s")
    assert "incomplete" in done.stdout or "lost" in done.stdout, done.stdout
