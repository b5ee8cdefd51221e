"""fanin bench, briefly: that it measures, not how fast this machine is."""

import json
import os
import re
import subprocess
import tempfile

import pytest

from fanin_run import FANIN, LONGEST_S, fanin


def measured(*options, idle=False):
    """A sample is short, and as long as it takes until everybody has had a turn on a busy machine."""
    for duration in ("100ms", "1s", "10s"):
        done = fanin("bench", *options, "--duration", duration, "--runs", "1", "--stolen-max", "100", "--quiet", "--json", "-")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        if idle or all(row["messages_per_s"] > 0 for row in result["results"]):
            break
    return result


def bench(*options, **how):
    return {row["what"]: row for row in measured(*options, **how)["results"]}


def check_rates(rows, *expected):
    assert set(rows) >= set(expected), f"{expected} expected: {list(rows)}"
    for row in rows.values():
        assert row["messages_per_s"] > 0 and row["bytes_per_s"] > 0, f"nothing was measured: {row}"


def check_latencies(rows, *expected):
    assert set(rows) >= set(expected), f"{expected} expected: {list(rows)}"
    for row in rows.values():
        assert 0 < row["p50_us"] <= row["p99_us"] <= row["p999_us"], f"no latencies: {row}"


def test_the_bare_loops_are_measured_beside_it():
    rows = bench("evb", "--rus", "2", "--bus", "2", "--fragment-size", "200B")
    check_rates(rows, "raw", "fair", "nxn", "evb")
    assert rows["evb"]["ratio_to_fair"] > 0 and rows["evb"]["ratio_to_nxn"] > 0, f"no ratio: {rows['evb']}"


def test_the_bare_loops_depend_on_nothing_that_fanin_is_given():
    settings = measured("evb", "--rus", "1", "--bus", "1", "--fragment-size", "16KiB", "--readout-buffer", "32MiB",
                        "--wait", "poll")["settings"]
    assert settings["fair_working_set_bytes"] == 8 << 20, "working set"
    assert {settings["raw_wait"], settings["fair_wait"]} <= {"poll", "block"}, "how they wait"
    settings = measured("evb", "--rus", "1", "--bus", "1", "--fragment-size", "16KiB", "--wait", "block")["settings"]
    assert (settings["raw_wait"], settings["fair_wait"]) == ("block", "block"), "how they wait where fanin blocks"


def test_fragments_may_come_from_processes_beside_the_readout_units():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "receive.svg")
        result = measured("evb", "--nodes", "2x1", "--sources", "2", "--fragment-sizes", "200B,16KiB", "--receive", "--requirement", "1Hz",
                          "--no-baselines", "--plot", path)
        drawing = open(path, encoding="utf-8").read()
    assert result["settings"]["source_type"] == "receive", result["settings"]
    for row in result["results"]:
        check_rates({"evb": row}, "evb")
        assert {"sender0", "sender1"} <= {process["name"] for process in row["processes"]}, row["processes"]
        assert row.get("remark") is None, row
        assert row["required_bytes_per_s"] == 4 * row["size_bytes"] and row["reaches_requirement"] is True, row
        assert row["ratio_to_requirement"] == pytest.approx(row["events_per_s"]), row
    assert "required: 1 Hz" in drawing and drawing.count("<polyline") == 2, "evb and the requirement"
    result = measured("evb", "--url", "shm", "--fragment-size", "16KiB", "--receive", "--requirement", "100MHz", "--no-baselines")
    assert result["results"][0]["reaches_requirement"] is False, result["results"]
    for wrong in (["--receive", "--url", "inproc"], ["--receive", "--rate", "1kHz"], ["--receive", "--idle"],
                  ["--requirement", "1kHz", "--rate", "1kHz"], ["--requirement", "1kB"]):
        done = fanin("bench", "evb", *wrong)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and wrong[0] in done.stderr, done


def test_sizes_of_fragments_may_be_log_normal():
    result = measured("evb", "--fragment-size", "2KiB", "--fragment-sigma", "2KiB", "--no-baselines")
    row = result["results"][0]
    assert result["settings"]["fragment_sigma_bytes"] == 2048, result["settings"]
    assert row["bytes_per_s"] / row["fragments_per_s"] == pytest.approx(2048, rel=0.2), row
    assert row.get("remark") is None, row
    done = fanin("bench", "evb", "--fragment-sigma", "2KiB", "--receive")
    assert done.returncode == 2 and "--fragment-sigma: not with --receive" in done.stderr, done


def test_event_building_is_measured_beside_streams_over_every_transport():
    for url in ("shm", "inproc"):
        check_rates(bench("evb", "--url", url, "--fragment-size", "16KiB"), "nxn", "evb")


def test_a_trigger_gives_latencies():
    own = bench("evb", "--rus", "1", "--bus", "1", "--fragment-size", "200B", "--rate", "1kHz")["evb"]
    assert 0 < own["p50_us"] <= own["p99_us"] <= own["p999_us"], own


def test_events_are_stored_and_the_folder_is_empty_afterwards():
    with tempfile.TemporaryDirectory() as folder:
        own = bench("evb", "--rate", "1kHz", "--storage", folder)["evb"]
        assert own["p50_us"] > 0, f"no latency: {own}"
        assert "remark" not in own, f"{own.get('remark')}"
        assert os.listdir(folder) == [], "what is left in the folder"


def test_contenders_share_one_congestion_control():
    with open("/proc/sys/net/ipv4/tcp_congestion_control") as file:
        host = file.read().strip()
    assert measured("stream", "--size", "1KiB", "--peers", "none")["settings"]["congestion"] == host, (
        "congestion control")
    with open("/proc/sys/net/ipv4/tcp_available_congestion_control") as file:
        others = [name for name in file.read().split() if name != host]
    if not others:
        pytest.skip("the kernel has one congestion control")
    for said in (("--congestion", others[0]), ("--url", f"tcp://127.0.0.1?congestion={others[0]}")):
        result = measured("stream", "--size", "1KiB", "--peers", "raw,zeromq,mpi", *said)
        assert result["settings"]["congestion"] == others[0], said
        assert {row["what"] for row in result["results"]} == {"raw", "fanin"}, "contenders"
        assert {text.split(":")[0] for text in result["remarks"]} == {"zeromq", "mpi"}, "those that were left out"
    own = measured("evb", "--url", f"tcp://127.0.0.1?congestion={others[0]}", "--fragment-size", "16KiB")
    assert own["settings"]["congestion"] == others[0], "congestion control of the bare loops"
    both = fanin("bench", "evb", "--url", f"tcp://127.0.0.1?congestion={others[0]}", "--congestion", host)
    assert both.returncode == 2 and "that of --url is" in both.stderr, both.stderr


def test_idle_processes_are_counted():
    own = bench("evb", "--rus", "1", "--bus", "1", "--idle", idle=True)["evb"]
    assert {process["name"] for process in own["processes"]} >= {"evm", "ru0", "bu0"}, own


def test_streams_stand_beside_their_peers():
    for url in ("tcp", "shm", "inproc"):
        result = measured("stream", "--url", url, "--sizes", "64B,1MiB")
        for size in (64, 1 << 20):
            rows = {row["what"]: row for row in result["results"] if row["size_bytes"] == size}
            check_rates(rows, "raw", "memcpy", "fanin")
            assert rows["fanin"]["ratio_to_raw"] > 0, f"no ratio: {rows['fanin']}"
        # Those that were not built in are said.
        named = {row["what"] for row in result["results"]} | {text.split(":")[0] for text in result.get("remarks", [])}
        assert named >= {"zeromq", "mpi"}, f"peers: {named}"


def test_round_trips_stand_beside_their_peers():
    for url in ("tcp", "shm"):
        rows = bench("roundtrip", "--url", url, "--size", "64B", "--under-load")
        check_latencies(rows, "raw", "fanin", "fanin-loaded")
        assert rows["fanin-loaded"]["ratio_to_unloaded"] > 0, f"no ratio: {rows['fanin-loaded']}"
        assert rows["fanin-loaded"]["load_bytes_per_s"] > 0, f"no load: {rows['fanin-loaded']}"
    check_latencies(bench("roundtrip", "--url", "inproc", "--size", "64B", "--peers", "none"), "fanin")


def test_round_trips_overlap_and_keep_a_rate():
    rows = bench("roundtrip", "--size", "64KiB", "--pipeline", "16")
    check_latencies(rows, "raw", "fanin")
    for row in rows.values():
        assert row["bytes_per_s"] == pytest.approx(2 * 65536 * row["messages_per_s"], rel=0.01), "of both directions"
    check_latencies(bench("roundtrip", "--size", "64B", "--pipeline", "2000"), "raw", "fanin")  # and ZeroMQ, where it is
    rows = bench("roundtrip", "--size", "64B", "--rate", "1kHz", "--wait", "block")
    check_latencies(rows, "raw", "fanin")
    for row in rows.values():  # what is late on a busy machine is caught up; without a rate it would be tens of thousands
        assert row["messages_per_s"] < 4000, f"more than was offered: {row}"


def test_subscribers_are_measured_together():
    for url in ("tcp", "shm", "inproc"):
        rows = bench("pubsub", "--url", url, "--size", "1KiB", "--subscribers", "3")
        check_rates(rows, "fanin", "point-to-point")
        assert rows["fanin"]["ratio_to_point_to_point"] > 0, f"no ratio: {rows['fanin']}"


def test_many_send_to_many():
    rows = bench("nxn", "--rus", "2", "--bus", "2", "--size", "1KiB")
    check_rates(rows, "raw", "fair", "fanin")
    assert rows["fanin"]["per_node_bytes_per_s"] > 0, f"no rate per node: {rows['fanin']}"
    for url in ("shm", "inproc"):
        check_rates(bench("nxn", "--url", url, "--rus", "2", "--bus", "2", "--size", "1KiB"), "fanin")


def test_many_send_to_many_in_an_order():
    for url, shaping, size in (("tcp", "random", "16KiB"), ("shm", "linear-shift", "64B"), ("tcp", "barrel-shifter", "1MiB"),
                               ("tcp", "tokens", "1KiB")):
        result = measured("nxn", "--url", url, "--rus", "3", "--bus", "2", "--size", size, "--shaping", shaping, "--peers", "none")
        assert result["settings"]["shaping"] == shaping, result["settings"]
        check_rates({row["what"]: row for row in result["results"]}, "fanin")
    check_rates(bench("evb", "--rus", "2", "--bus", "2", "--fragment-size", "200B", "--shaping", "linear-shift"), "nxn", "evb")
    odd = ("--shaping", "linear-shift", "--shaping-window", "100KiB")  # carriers of 25 KiB
    check_rates(bench("evb", "--rus", "2", "--bus", "2", "--fragment-size", "64KiB", *odd), "nxn", "evb")


def test_two_hosts_measure_together():
    far = subprocess.Popen([FANIN, "bench", "stream", "--listen", "tcp://127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
    try:
        url = re.search(r"listens at (\S+)", far.stderr.readline())[1]
        result = measured("stream", "--url", url, "--size", "1KiB")
        assert result["settings"]["hosts"] == 2, "hosts"
        check_rates({row["what"]: row for row in result["results"]}, "raw", "fanin")
        check_latencies(bench("roundtrip", "--url", url, "--size", "64B"), "raw", "fanin")
        check_rates(bench("pubsub", "--url", url, "--size", "64B", "--subscribers", "2"), "fanin")
        far.terminate()
        assert far.wait(timeout=LONGEST_S) == 0, "exit status of the other host"
    finally:
        far.kill()
        far.wait()
        far.stderr.close()


def test_there_is_a_table_and_a_drawing():
    with tempfile.TemporaryDirectory() as folder:
        drawing = os.path.join(folder, "stream.svg")
        done = fanin("bench", "stream", "--sizes", "8B..64B", "--peers", "raw", "--duration", "200ms", "--runs", "1",
                     "--stolen-max", "100", "--plot", drawing)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines[0].split()[:3] == ["size", "raw", "fanin"], done.stdout
        assert ([line.split("  ")[0].strip() for line in lines[1:]] and len(lines)) == 4, f"lines of {done.stdout}"
        with open(drawing, encoding="utf-8") as file:
            text = file.read()
        assert text.startswith("<svg") and text.count("<circle") == 6, text[:200]


def test_event_building_is_drawn_over_sizes_of_fragments():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "f.svg")
        result = measured("evb", "--nodes", "1x1", "--fragment-sizes", "200B,1KiB..16KiB", "--wait", "block", "--plot", path)
        sizes = [200, 1 << 10, 4 << 10, 16 << 10]
        assert [row["size_bytes"] for row in result["results"] if row["what"] == "evb"] == sizes
        for size in sizes:
            check_rates({row["what"]: row for row in result["results"] if row["size_bytes"] == size}, "raw", "fair", "nxn", "evb")
        with open(path) as file:
            drawing = file.read()
    assert "fanin bench evb" in drawing and drawing.count("<polyline") == 4, "a line for each contender"
    done = fanin("bench", "evb", "--nodes", "1x1", "--fragment-sizes", "1KiB,2KiB", "--runs", "1", "--duration", "50ms", "--no-baselines",
                 "--stolen-max", "100", "--quiet")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^fragments of (.*)$", done.stdout, re.M) == ["1 KiB", "2 KiB"], done.stdout


def test_bad_input_is_said_in_one_line():
    for arguments in (("stream", "--url", "nothing"), ("stream", "--sizes", "0B"), ("stream", "--sizes", "1GiB"),
                      ("stream", "--sizes", "8..64"), ("stream", "--peers", "nobody"), ("stream", "--duration", "1ms"),
                      ("stream", "--wait", "sometimes"), ("roundtrip", "--rate", "fast"), ("pubsub", "--subscribers", "0"),
                      ("nxn", "--rus", "1000"), ("nxn", "--shaping", "sideways"), ("stream", "--listen", "shm://x"), ("stream", "--listen", "tcp", "--url", "tcp"),
                      ("stream", "--url", "shm://x:7000"), ("evb", "--url", "nothing")):
        done = fanin("bench", *arguments)
        assert done.returncode == 2, f"status of fanin bench {' '.join(arguments)}: {done.stderr}"
        assert len(done.stderr.strip().splitlines()) == 1, f"lines of {done.stderr!r}"
    done = fanin("bench", "stream", "--url", "tcp://127.0.0.1:1")
    assert done.returncode == 1, f"status with nobody there: {done.stderr}"
