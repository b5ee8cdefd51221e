"""The event builder over RDMA: run in a guest that has it, by ./dev test-rdma. FANIN_RDMA_SCHEME: verbs,
or ofi+verbs; rxe0 has 10.9.0.1, rxe1 10.8.0.1 (tools/rdma_guest.sh)."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

import death_test as death
import fanin_run
from fanin_run import Folder, Run, check_balanced, fanin, verify, wait_until

SCHEME = os.environ.get("FANIN_RDMA_SCHEME", "verbs")
CONTROL = f"{SCHEME}://10.9.0.1"
OTHER = f"{SCHEME}://10.8.0.1"  # on the other device
PATIENCE = "20s"  # no fragment is late, and all is emulated


@pytest.fixture(autouse=True)
def over_rdma(monkeypatch):
    if not Path("/sys/class/infiniband/rxe1").exists():
        pytest.skip("no RDMA device here: ./dev test-rdma boots a guest that has two")
    monkeypatch.setattr(fanin_run, "URL", CONTROL)
    monkeypatch.setattr(fanin_run, "RATE", "500Hz")


def builds(*more):
    with Folder() as folder:
        done = fanin("run", folder.small(), "--set", f"event.deadline={PATIENCE}", "--events", "2000", "--json", "-",
                     *more)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        check_balanced(result)
        assert {name: number for name, number in result["events"].items() if number} == {"built": 2000}, "events"
        found = verify(result)
        assert found["events"] == 2000, "events in the files"
        assert found["complete"] == 2000, "complete events in the files"


def test_two_by_two_build_every_event():
    builds()


def test_two_by_two_build_every_event_with_pull():
    builds("--set", "network.protocol=pull")


def test_control_and_data_may_use_different_devices():
    builds("--set", f"network.url={OTHER}", "--set", f"network.control={CONTROL}")


def test_control_may_go_over_tcp():
    builds("--set", "network.control=tcp://127.0.0.1")


def test_the_events_of_a_dead_builder_are_built_by_others():
    death.builder_dies("push", deadline=PATIENCE)


def test_the_run_goes_on_without_a_dead_readout_unit_until_it_is_back():
    death.readout_dies("push", deadline="4s")


def test_where_connections_share_receives_the_events_of_a_dead_builder_are_built_by_others():
    sharing = f"{CONTROL}?share_above=0"
    builds("--set", f"network.url={sharing}", "--set", f"network.control={sharing}")
    fanin_run.URL = sharing
    try:
        death.builder_dies("pull", deadline=PATIENCE)
    finally:
        fanin_run.URL = CONTROL


def test_a_small_memory_lock_limit_is_said_in_one_line_with_the_remedy():
    with Folder() as folder:
        folder.path.chmod(0o777)
        config = folder.small()
        command = f"ulimit -l 64 && exec setpriv --reuid 65534 --regid 65534 --clear-groups {fanin_run.FANIN} run {config}"
        done = subprocess.run(["bash", "-c", command + " --events 10"], capture_output=True, text=True,
                              timeout=fanin_run.LONGEST_S)
        assert done.returncode != 0, "it ran"
        lines = [line for line in done.stderr.splitlines() if "ulimit -l" in line]
        assert lines and "64KiB" in lines[0].replace(" ", "") and "limits.conf" in lines[0], done.stderr


def test_a_user_without_the_right_to_rdma_is_told_which():
    for files in ("rdma_cm", "uverbs*"):
        with Folder() as folder:
            folder.path.chmod(0o777)
            config = folder.small()
            command = f"chmod 600 /dev/infiniband/{files} && exec setpriv --reuid 65534 --regid 65534 --clear-groups "
            command += f"{fanin_run.FANIN} run {config} --events 10"
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=fanin_run.LONGEST_S)
            subprocess.run(["bash", "-c", "chmod 666 /dev/infiniband/*"], check=True)
            assert done.returncode != 0, "it ran"
            assert f"may not use /dev/infiniband/{files.rstrip('*')}" in done.stderr, f"{files}: {done.stderr}"


def test_an_address_without_a_device_is_said_so():
    with Folder() as folder:
        done = fanin("run", folder.small(), "--set", f"network.url={SCHEME}://127.0.0.1", "--events", "10")
        assert done.returncode != 0, "it ran"
        assert "RDMA" in done.stderr, done.stderr


def test_the_benches_know_the_port_and_its_rate():
    """Of each pattern a short run; how fast it is says nothing here."""
    device, interface = "rxe1", "10.8.0.1"
    text = Path(f"/sys/class/infiniband/{device}/ports/1/rate").read_text()
    rate = float(text.split()[0]) * 1e9
    sizes = ("--sizes", "4KiB", "--peers", "none")
    for pattern, *options in (("stream", *sizes), ("roundtrip", *sizes), ("nxn", *sizes, "--rus", "1", "--bus", "1"),
                              ("evb", "--fragment-size", "4KiB", "--no-baselines")):
        with Folder() as folder:
            file = folder.path / "result.json"
            done = fanin("bench", pattern, "--url", f"{SCHEME}://{interface}", *options, "--runs", "1", "--duration", "500ms",
                         "--quiet", "--json", str(file))
            assert done.returncode == 0, done.stderr
            assert f"of the {rate * 1e-9:.3g} Gb/s of {device} port 1" in done.stdout, done.stdout
            result = json.loads(file.read_text())
            assert result["port"] == {"device": device, "number": "1", "rate_bits_per_s": rate}, "port"
            row = result["results"][-1]
            directions = 2 if pattern == "roundtrip" else 1  # the rate of a port is that of one
            share = row["bytes_per_s"] / directions * 8 / rate
            assert row["bytes_per_s"] > 0 and abs(row["share_of_port"] - share) < 1e-6 * share, str(row)


def pages_on(pid, node, least):
    """Whether the mappings of so many bytes in a process lie on that NUMA node."""
    seen = {0: 0, 1: 0}
    for line in Path(f"/proc/{pid}/numa_maps").read_text().splitlines():
        counts = {int(n): int(c) for n, c in re.findall(r"\bN(\d)=(\d+)", line)}
        if sum(counts.values()) * 4096 < least:
            continue
        for number, count in counts.items():
            seen[number] += count
    return seen[node] * 4096 >= least and seen[1 - node] == 0


def test_pools_and_threads_are_on_the_configured_numa_node():
    if not Path("/sys/devices/system/node/node1").exists():
        pytest.skip("this machine has one NUMA node")
    with Folder() as folder:
        config = folder.small(readouts=1, builders=1)
        text = config.read_text()
        text = text.replace("[[readout]]", "[[readout]]\nnuma_node = 0\ncpu = [0]")
        text = text.replace("[[builder]]", "[[builder]]\nnuma_node = 1\ncpu = [1]")
        config.write_text(text)
        with Run(config, "--duration", "60s") as run:
            pids = {node: run.pid(node) for node in ("ru0", "bu0")}
            run.wait_for("run 1 begins")
            run.wait_for_events(300)
            for name, node, least in (("ru0", 0, 8 << 20), ("bu0", 1, 32 << 20)):
                assert pages_on(pids[name], node, least), (
                    f"{name} is not on node {node}:\n" + Path(f"/proc/{pids[name]}/numa_maps").read_text())
                assert os.sched_getaffinity(pids[name]) == {node}, f"processors of {name}"
            run.signal(signal.SIGINT)
            check_balanced(run.finish())


def make_rxe1_anew():
    """SoftRoCE of Linux 6.1 receives no request to connect any more once it had to send one while its interface was
    down (docs/rdma.md). Nobody uses the device meanwhile."""
    for command in ("ip link set v0 up", "rdma link delete rxe1", "rdma link add rxe1 type rxe netdev v0"):
        subprocess.run(command.split(), check=True)
    state = Path("/sys/class/infiniband/rxe1/ports/1/state")
    wait_until(lambda: state.exists() and "ACTIVE" in state.read_text(), "an active port of rxe1")
    subprocess.run(["bash", "-c", "chmod 666 /dev/infiniband/*"], check=True)


def test_a_lost_rail_costs_speed_and_no_event():
    with Folder() as folder:
        config = folder.small()
        config.write_text(config.read_text().replace("[[builder]]", f'[[builder]]\nurl = ["{CONTROL}", "{OTHER}"]'))
        try:
            with Run(config, "--set", f"event.deadline={PATIENCE}", "--duration", "100s") as run:
                run.wait_for("run 1 begins")
                run.wait_for_events(500)
                subprocess.run("ip link set v0 down".split(), check=True)
                for _ in range(4):  # each readout unit, to each builder unit
                    run.wait_for(r"10\.8\.0\.1:\d+ is closed, continuing over \S+10\.9\.0\.1")
                run.wait_for_events(1000)
                run.signal(signal.SIGINT)
                result = run.finish()
        finally:
            make_rxe1_anew()
        check_balanced(result)
        assert result["events"]["lost"] == 0, "lost events"
        assert result["events"]["incomplete"] == 0, "incomplete events\n" + run.text()
        assert verify(result)["events"] == result["events"]["built"], "events in the files"


def test_connections_that_break_are_made_again_and_cost_no_event():
    """The interface gets another hardware address: the connections that there are can send nothing any more."""
    address = Path("/sys/class/net/v0/address").read_text().strip()
    with Folder() as folder:
        with Run(folder.small(), "--set", f"network.url={OTHER}", "--set", f"network.control={CONTROL}",
                 "--set", f"event.deadline={PATIENCE}", "--duration", "100s") as run:
            run.wait_for("run 1 begins")
            run.wait_for_events(500)
            changed = address[:-1] + ("0" if address[-1] != "0" else "1")
            subprocess.run(["ip", "link", "set", "v0", "address", changed], check=True)
            run.wait_for("local QP operation error|retry counter exceeded")
            run.wait_for_events(2000)
            run.signal(signal.SIGINT)
            result = run.finish()
        check_balanced(result)
        assert result["events"]["lost"] == 0, "lost events"
        assert result["events"]["incomplete"] == 0, "incomplete events"
        assert verify(result)["events"] == result["events"]["built"], "events in the files"
