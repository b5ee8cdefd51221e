"""./dev testbed, a network of hosts in network namespaces; and runs on its hosts. Skipped where there are no such namespaces."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fanin_run import SOURCE, Folder, Run, check_balanced, fanin, verify, wait_until

os.environ["PATH"] += ":/usr/sbin:/sbin"
TOOL = [sys.executable, str(SOURCE / "tools/testbed.py")]
SMALL = ["--rate", "200Mb/s", "--switch-buffer", "128KiB"]


class Testbed:
    """A folder for a testbed, which is removed with it."""

    __test__ = False  # for pytest

    def __init__(self, prefix=()):
        self.prefix = list(prefix)

    def __enter__(self):
        self.folder = Folder()
        self.path = self.folder.__enter__().path / "testbed"
        self.environment = os.environ | {"FANIN_TESTBED": str(self.path)}
        return self

    def __exit__(self, *exception):
        self.command("down")
        self.folder.__exit__(*exception)

    def words(self, *words):
        return [*self.prefix, *TOOL, *words]

    def command(self, *words):
        return subprocess.run(self.words(*words), env=self.environment, capture_output=True, text=True, timeout=120)

    def up(self, *words):
        """Makes it, or the test is skipped where that is impossible."""
        for program, package in {"unshare": "util-linux", "nsenter": "util-linux", "ip": "iproute2", "tc": "iproute2"}.items():
            if not shutil.which(program):
                pytest.skip(f"no network namespace without {program} ({package}), which is not installed")
        done = self.command("up", *words)
        if "no network namespace can be made" in done.stderr:
            pytest.skip(done.stderr.strip())
        if "qdisc kind is unknown" in done.stderr:
            pytest.skip(f"no tbf in this kernel: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        return done.stdout

    def state(self):
        return json.loads((self.path / "state.json").read_text())

    def status(self):
        done = self.command("status", "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def enter(self, host, *words):
        done = self.command("enter", host, *words)
        assert done.returncode == 0, f"{host}: {' '.join(words)}: {done.stderr}"
        return done.stdout

    def refused(self, status, *words):
        """What a command says that fails, which is one line."""
        done = self.command(*words)
        assert done.returncode == status, f"{words}: status {done.returncode}: {done.stdout}{done.stderr}"
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("./dev testbed: "), done.stderr
        return done.stderr


def processes_in_namespaces_with(mark):
    """A number of a namespace is no mark: the kernel gives it again."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/net/fib_trie"):
        with contextlib.suppress(OSError):
            if f" {mark}\n" in entry.read_text():
                found.append(entry)
    return found


def check_nothing_left(testbed, mark):
    assert not testbed.path.exists(), f"files are left: {list(testbed.path.iterdir())}"
    wait_until(lambda: not processes_in_namespaces_with(mark), "the processes in its network namespaces end")


def test_a_testbed_has_the_links_and_buffers_that_were_asked_for_and_leaves_nothing():
    with Testbed() as testbed:
        testbed.up("2x1", "--rate", "100Mb/s", "--switch-buffer", "64KiB", "--mtu", "1500", "--rails", "2", "--gso", "32KiB")
        status = testbed.status()
        assert status["hosts"] == ["evm", "ru0", "ru1", "bu0"]
        allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
        expected = ["cubic"] if "cubic" in allowed else allowed
        assert status["settings"]["tcp_congestion_control"] in expected, status["settings"]
        assert status["settings"]["tcp_slow_start_after_idle"] in "01", status["settings"]
        assert len(status["ports"]) == 8, "a port for each host and rail"
        for device, inner in (("ru1.1", []), ("rail1", ["pfifo_fast"])):
            host = "switch" if device == "ru1.1" else "ru1"
            queue, *within = json.loads(testbed.enter(host, "tc", "-r", "-j", "qdisc", "show", "dev", device))
            assert queue["kind"] == "tbf" and queue["options"]["rate"] == 12_500_000, queue  # bytes
            assert [queue["kind"] for queue in within] == inner, within
            assert inner or queue["options"]["limit"] == 64 << 10, queue
            assert abs(queue["options"]["burst"] - 2 * 1514) < 16, queue
            link = json.loads(testbed.enter(host, "ip", "-j", "-d", "link", "show", "dev", device))[0]
            assert (link["mtu"], link["gso_max_size"], link["txqlen"]) == (1500, 32 << 10, 1000), link
        lines = [line for line in (testbed.path / "hosts").read_text().splitlines() if not line.startswith("#")]
        assert lines[3].startswith("10.88.0.4,10.88.1.4 nsenter "), lines
        testbed.refused(2, "enter", "ru7", "true")
        assert len(set(status["spaces"].values())) == 5, "a namespace for each host, and the switch"
        assert processes_in_namespaces_with(status["mark"]), "the process that holds it is in the switch's"
        down = testbed.command("down")
        assert (down.returncode, down.stdout) == (0, "down\n"), down
        check_nothing_left(testbed, status["mark"])


def test_data_cross_a_testbed_no_faster_than_its_links():
    receiver = ("import socket, time; s = socket.create_server(('10.88.0.3', 7000)); print('ready', flush=True); c = s.accept()[0]; "
                "n = len(c.recv(1)); t = time.monotonic()\n"
                "while p := c.recv(1 << 20): n += len(p)\n"
                "print(n / (time.monotonic() - t))")
    sender = "import socket; c = socket.create_connection(('10.88.0.3', 7000)); c.sendall(bytes(4_000_000))"
    with Testbed() as testbed:
        testbed.up("1x1", *SMALL)
        words = testbed.words("enter", "bu0", sys.executable, "-c", receiver)
        with subprocess.Popen(words, env=testbed.environment, stdout=subprocess.PIPE, text=True) as listening:
            assert listening.stdout.readline() == "ready\n"
            testbed.enter("ru0", sys.executable, "-c", sender)
            rate = float(listening.stdout.read())
        assert 0 < rate < 25e6 * 1.02, f"{rate} bytes/s over a link of 25 MB/s"
        port = testbed.status()["ports"]["bu0.0"]
        assert port["bytes"] > 4_000_000, "they came through the switch"


def test_up_that_is_killed_leaves_nothing():
    with Testbed() as testbed:
        testbed.up("1x1")
        testbed.command("down")
        process = subprocess.Popen(testbed.words("up", "8x8"), env=testbed.environment, stdout=subprocess.DEVNULL)
        wait_until(lambda: (testbed.path / "state.json").exists(), "it begins")
        process.send_signal(signal.SIGKILL)
        process.wait()
        holder = testbed.state()["pid"]
        wait_until(lambda: not Path(f"/proc/{holder}").exists(), "the process that holds it ends")
        assert "down removes what is left" in testbed.refused(1, "status")
        testbed.up("1x1")  # that removes it too


def test_a_testbed_whose_process_was_killed_is_recognized():
    with Testbed() as testbed:
        testbed.up("1x1")
        state = testbed.state()
        words = testbed.words("enter", "ru0", "sleep", "600")
        with subprocess.Popen(words, env=testbed.environment) as user:
            space = f"net:[{state['spaces']['ru0']}]"
            wait_until(lambda: os.readlink(f"/proc/{user.pid}/ns/net") == space, "a process runs on a host")
            os.kill(state["pid"], signal.SIGKILL)
            wait_until(lambda: not Path(f"/proc/{state['pid']}").exists(), "it is dead")
            testbed.refused(1, "status")
            down = testbed.command("down")
            assert "one process that ran on it" in down.stdout, down
            assert user.wait() == -signal.SIGTERM
        check_nothing_left(testbed, state["mark"])


def test_down_ends_nothing_in_a_namespace_that_has_got_the_number_of_an_old_one():
    with Testbed() as testbed:
        testbed.up("1x1")
        state = testbed.state()
        os.kill(state["pid"], signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{state['pid']}").exists(), "it is dead")
        rights = ["--user", "--map-root-user"] if state["user_namespace"] else []
        with subprocess.Popen(["unshare", *rights, "--net", "sleep", "600"]) as other:
            mine = os.readlink("/proc/self/ns/net")
            wait_until(lambda: os.readlink(f"/proc/{other.pid}/ns/net") != mine, "it has a namespace of its own")
            number = int(re.search(r"\d+", os.readlink(f"/proc/{other.pid}/ns/net"))[0])
            state["spaces"] = {host: number for host in state["spaces"]}
            (testbed.path / "state.json").write_text(json.dumps(state))
            down = testbed.command("down")
            assert (down.returncode, down.stdout) == (0, "down\n"), down
            assert other.poll() is None, "another program was ended"
            other.terminate()


def test_what_cannot_be_is_refused_in_one_line():
    with Testbed() as testbed:
        for words, reason in (
            (["8"], 'a number of readout and of builder units, as in 8x8'),
            (["0x4"], "1 to 64 hosts of each kind"),
            (["4x65"], "1 to 64 hosts of each kind"),
            (["1x1", "--rate", "200"], "not a number with a unit (b/s"),
            (["1x1", "--rate", "1b/s"], "1 Mb/s to 100 Gb/s"),
            (["1x1", "--switch-buffer", "128K"], "not a number with a unit (B"),
            (["1x1", "--switch-buffer", "17kB"], "two frames (18028 B) to 1 GiB"),
            (["1x1", "--mtu", "100"], "576 to 65521 bytes"),
            (["1x1", "--rails", "9"], "1 to 8"),
            (["1x1", "--gso", "1KiB"], "one MTU to 64 KiB"),
        ):
            assert reason in testbed.refused(2, "up", *words), words
        assert "no testbed is up" in testbed.refused(1, "status")
        assert testbed.command("down").stdout == "no testbed is up\n"
        assert not testbed.path.exists(), "a folder is left"


def test_there_is_one_testbed_at_a_time():
    with Testbed() as testbed:
        testbed.up("1x1")
        assert "is up already (1x1" in testbed.refused(1, "up", "2x2")
        assert testbed.status()["hosts"] == ["evm", "ru0", "bu0"], "the first one is as it was"


def test_a_user_without_rights_makes_a_testbed_in_a_user_namespace():
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if os.geteuid() != 0 or subprocess.run([*nobody, "true"], capture_output=True).returncode != 0:
        pytest.skip("needs root, to become another user")
    with Testbed(nobody) as testbed:
        os.chmod(testbed.path.parent, 0o777)
        testbed.up("1x1")
        assert testbed.status()["user_namespace"]
        assert "10.88.0.2" in testbed.enter("ru0", "ip", "address", "show", "dev", "rail0")


def run_file(testbed, readouts=2, builders=2):
    text = (f'[run]\noutput = "{testbed.path.parent}/out"\n[trigger]\nrate = "500Hz"\n[buffers]\nreadout = "32MiB"\nbuilder = "48MiB"\n'
            'huge_pages = "off"\n[source]\ntype = "emulator"\nsize = "1000B"\nfragment_max = "32KiB"\n'
            f'[[readout]]\ncount = {readouts}\nsource = [{{ count = 2 }}]\n[[builder]]\ncount = {builders}\n')
    path = testbed.path.parent / "run.toml"
    path.write_text(text)
    return path


def test_a_run_on_a_testbed_builds_its_events_over_the_network():
    with Testbed() as testbed:
        testbed.up("2x2", *SMALL)
        with Run(run_file(testbed), "--testbed", "--events", "1000", env=testbed.environment) as run:
            assert run.url().startswith("tcp://10.88.0.1:")
            result = run.finish()
        assert result["events"]["built"] == 1000
        check_balanced(result)
        assert verify(result)["complete"] == 1000
        ports = testbed.status()["ports"]
        assert ports["bu0.0"]["bytes"] + ports["bu1.0"]["bytes"] > 4_000_000, "they came through the switch"


def test_a_run_refuses_a_testbed_that_is_too_small_or_down():
    with Testbed() as testbed:
        testbed.up("1x1")
        config = run_file(testbed)
        done = fanin("run", config, "--testbed", env=testbed.environment)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done
        assert "has 3 hosts, and 5 are needed" in done.stderr and "./dev testbed up 2x2" in done.stderr, done
        holder = testbed.state()["pid"]
        os.kill(holder, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{holder}").exists(), "it is dead")
        done = fanin("run", config, "--testbed", env=testbed.environment)
        assert done.returncode == 2 and "no testbed is up" in done.stderr, done


def test_a_run_on_a_testbed_that_goes_down_ends_in_good_order():
    with Testbed() as testbed:
        testbed.up("2x2", *SMALL)
        with Run(run_file(testbed), "--testbed", env=testbed.environment) as run:
            run.wait_for_events(200)
            assert testbed.command("down").returncode == 0
            check_balanced(run.finish())


def test_benches_on_a_testbed_compare_with_one_bare_stream_over_its_links():
    with Testbed() as testbed:
        testbed.up("2x1", *SMALL)
        for bench in ("evb", "nxn"):
            size = "--fragment-size" if bench == "evb" else "--size"
            done = fanin("bench", bench, "--testbed", "--nodes", "2x1", size, "16KiB", "--runs", "1", "--duration", "500ms",
                         "--stolen-max", "100", "--json", "-", env=testbed.environment)
            assert done.returncode == 0, done.stderr
            rows = {row["what"]: row for row in json.loads(done.stdout)["results"]}
            link = rows["link"]["bytes_per_s"]
            assert 0 < link < 25e6 * 1.1, f"{link} bytes/s over a link of 25 MB/s"
            name = "evb" if bench == "evb" else "fanin"
            assert rows[name]["ratio_to_link"] == pytest.approx(rows[name]["bytes_per_s"] / link), "two senders share one link"
            assert any(process["cpu"] > 0 for process in rows[name]["processes"]), "what its processes there used"
            for row in rows.values():
                assert 0 <= row["idle_cpu"] <= 1 and row["loaded"] == (row["idle_cpu"] < 0.25), row
                assert row["retransmitted"] >= 0 and row["switch_drops"] >= 0, row


def test_fragments_that_are_received_take_nothing_of_the_links():
    with Testbed() as testbed:
        testbed.up("2x1", *SMALL)
        done = fanin("bench", "evb", "--testbed", "--nodes", "2x1", "--receive", "--requirement", "1Hz", "--fragment-size", "16KiB", "--runs",
                     "1", "--duration", "500ms", "--stolen-max", "100", "--json", "-", env=testbed.environment)
        assert done.returncode == 0, done.stderr
        rows = {row["what"]: row for row in json.loads(done.stdout)["results"]}
        assert set(rows) == {"link", "nxn", "evb"} and rows["evb"]["reaches_requirement"] is True, rows
        assert {"sender0", "sender1"} <= {process["name"] for process in rows["evb"]["processes"]}, rows["evb"]
        ports = testbed.status()["ports"]
        assert ports["ru0.0"]["bytes"] < ports["bu0.0"]["bytes"] / 4, f"a switch's port sends to its host: {ports}"


def test_benches_on_a_testbed_say_what_the_switch_drops_and_what_is_sent_again():
    with Testbed() as testbed:
        testbed.up("2x1", "--rate", "200Mb/s", "--switch-buffer", "20kB")  # two frames
        done = fanin("bench", "nxn", "--testbed", "--nodes", "2x1", "--size", "64KiB", "--runs", "1", "--duration", "1s", "--peers", "none",
                     "--stolen-max", "100", "--json", "-", env=testbed.environment)
        assert done.returncode == 0, done.stderr
        row = {row["what"]: row for row in json.loads(done.stdout)["results"]}["fanin"]
        assert row["switch_drops"] > 0 and row["retransmitted"] > 0, row


def test_benches_use_several_rails_at_the_same_time():
    with Testbed() as testbed:
        testbed.up("1x1", "--rate", "50Mb/s", "--rails", "2")
        for bench in (["evb", "--sources", "2", "--fragment-size", "16KiB"], ["nxn", "--size", "16KiB", "--peers", "none"],
                      ["nxn", "--size", "16KiB", "--peers", "none", "--shaping", "linear-shift"]):
            done = fanin("bench", *bench, "--testbed", "--rails", "2", "--runs", "1", "--duration", "1s", "--stolen-max", "100", "--json", "-",
                         env=testbed.environment)
            assert done.returncode == 0, done.stderr
            rows = {row["what"]: row for row in json.loads(done.stdout)["results"]}
            row, one = rows["evb" if bench[0] == "evb" else "fanin"], rows["one rail"]
            assert row["ratio_to_one_rail"] == pytest.approx(row["bytes_per_s"] / one["bytes_per_s"]), row
            assert one["bytes_per_s"] < 50e6 / 8 * 1.1 < row["bytes_per_s"] < 2 * 50e6 / 8 * 1.1, f"{bench}: {row} {one}"
        ports = testbed.status()["ports"]
        assert ports["bu0.0"]["bytes"] > 1_000_000 and ports["bu0.1"]["bytes"] > 1_000_000, ports
        done = fanin("bench", "evb", "--testbed", "--sources", "3", "--rails", "3", env=testbed.environment)
        assert done.returncode == 2 and "./dev testbed up 1x1 --rails 3" in done.stderr, done
        done = fanin("bench", "evb", "--testbed", "--rails", "2", env=testbed.environment)
        assert done.returncode == 2 and "give --sources 2 too" in done.stderr, done


def test_a_host_may_have_a_sender_and_a_receiver():
    with Testbed() as testbed:
        testbed.up("2x2", "--rate", "50Mb/s")
        for bench, size in (("evb", "--fragment-size"), ("nxn", "--size")):
            done = fanin("bench", bench, "--testbed", "--nodes", "2x2", size, "16KiB", "--full-duplex", "--runs", "1", "--duration", "1s",
                         "--stolen-max", "100", "--json", "-", env=testbed.environment)
            assert done.returncode == 0, done.stderr
            rows = {row["what"]: row for row in json.loads(done.stdout)["results"]}
            both = rows["full duplex"]
            assert 0 < both["link_bytes_per_s"] < 2 * 50e6 / 8 * 1.2, f"over two links in each direction: {both}"
            assert both["ratio_to_apart"] > 0 and both["ratio_to_link"] > 0, both
        for wrong in (["--testbed", "--nodes", "2x1"], ["--testbed"], ["--nodes", "2x2"]):
            done = fanin("bench", "evb", "--full-duplex", *wrong, env=testbed.environment)
            assert done.returncode == 2 and done.stderr.startswith("--full-duplex: needs "), done


def test_one_slow_builder_unit_is_compared_with_itself_and_the_others():
    with Testbed() as testbed:
        testbed.up("2x2", "--rate", "50Mb/s")
        done = fanin("bench", "evb", "--testbed", "--nodes", "2x2", "--no-baselines", "--throttle", "10%", "--runs", "1", "--duration", "1s",
                     "--stolen-max", "100", "--json", "-", env=testbed.environment)
        if done.returncode == 2 and "cannot be limited" in done.stderr:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
        row = {row["what"]: row for row in json.loads(done.stdout)["results"]}["throttled"]
        assert row["cpu_quota"] == pytest.approx(max(row["cpu_before"] / 10, 0.001), rel=0.01), row
        assert row["cpu_throttled"] < row["cpu_before"], row
        assert row["ratio_of_others"] == pytest.approx(row["others_bytes_per_s"] / row["others_bytes_per_s_before"]), row
        assert not list(Path("/sys/fs/cgroup/cpu").glob("fanin-bench-*")), "left behind"
        done = fanin("bench", "evb", "--testbed", "--nodes", "2x1", "--throttle", "10%", env=testbed.environment)
        assert done.returncode == 2 and "--throttle: needs several builder units" in done.stderr, done


def test_a_bench_names_the_host_that_it_cannot_reach():
    with Testbed() as testbed:
        testbed.up("1x1", *SMALL)
        hosts = testbed.path / "hosts"
        lines = hosts.read_text().splitlines()
        lines[-1] = "10.88.0.3 sh -c 'echo no fanin here >&2; exit 127'"
        hosts.write_text("\n".join(lines))
        for bench in ("evb", "nxn"):
            done = fanin("bench", bench, "--testbed", "--runs", "1", "--quiet", env=testbed.environment)
            assert done.returncode == 1 and done.stderr.count("\n") == 1, done
            assert f"host 10.88.0.3 ({hosts}:{len(lines)}): no fanin here" in done.stderr, done
        done = fanin("bench", "evb", "--testbed", "--nodes", "4x4", env=testbed.environment)
        assert done.returncode == 2 and "has 3 hosts, and 9 are needed" in done.stderr, done
