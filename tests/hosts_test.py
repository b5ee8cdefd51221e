"""fanin run and fanin bench on a list of hosts. They are addresses of this machine, reached by a script that stands in for ssh; tests
on real networks of hosts are in testbed_test.py."""

import os
import re
import shlex
import signal
from pathlib import Path

from fanin_run import Folder, Run, check_balanced, fanin, verify, wait_until

# As ssh: it joins the words with spaces, and a shell there splits them again. The login shell says something of its own.
SSH = """#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
shift
echo "Welcome! {}"
exec sh -c "$*"
"""


class Hosts(Folder):
    """A folder with a configuration of two readout and two builder units, a list of hosts for it, and an ssh."""

    def __enter__(self):
        super().__enter__()
        self.write("ssh", SSH).chmod(0o755)
        self.environment = os.environ | {"PATH": f"{self.path}:{os.environ['PATH']}"}
        self.list = self.write("hosts", "# of this machine\n" + "".join(f"127.0.0.{i}\n" for i in range(1, 6)))
        self.small()
        text = (self.path / "run.toml").read_text().replace("tcp://127.0.0.1", "tcp").replace('readout = "16MiB"', 'readout = "32MiB"')
        self.write("run.toml", text)
        return self

    def run(self, *words):
        return Run(self.path / "run.toml", "--hosts", self.list, *words, env=self.environment, cwd=self.path)

    def refused(self, status, *words):
        """What is said in one line."""
        done = fanin("run", "run.toml", *words, cwd=self.path, env=self.environment)
        assert done.returncode == status, f"{words}: status {done.returncode}: {done.stderr}"
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr


def descendants(pid):
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(pid)] + [below for child in children for below in descendants(child)]


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def test_a_run_over_ssh_has_the_result_of_one_here():
    with Hosts() as hosts, hosts.run("--events", "2000") as run:
        assert run.url().startswith("tcp://127.0.0.1:")
        result = run.finish()
        check_balanced(result)
        assert result["events"]["built"] == 2000
        assert verify(result, hosts.path)["complete"] == 2000
        assert all(result["nodes"][name]["cpu_s"] > 0 for name in ("evm", "ru0", "ru1", "bu0", "bu1")), "also their resources"
        for file in (hosts.path / "out").glob("run*"):
            file.unlink()
        with hosts.run("--events", "100") as run:
            assert run.finish()["run"] == 2, "the event manager's host keeps the number"
        with hosts.run("--set", "run.number=2") as run:
            assert "run number 2 is not free" in run.finish(status=1)["error"]


def test_a_readout_unit_that_is_left_out_does_not_take_the_others_to_other_hosts():
    with Hosts() as hosts, hosts.run("--without", "0x100", "--without", "0x101") as run:
        run.wait_for_events(500)
        run.kill("bu1")
        run.wait_for(r"bu1 died: the connection to host 127\.0\.0\.5 ")
        run.signal()
        result = run.finish()
        check_balanced(result)
        assert sorted(result["nodes"]) == ["bu0", "bu1", "evm", "ru1"], result["nodes"]


def test_an_interrupt_drains_a_run_on_hosts():
    with Hosts() as hosts, hosts.run() as run:
        run.wait_for_events(500)
        run.signal(signal.SIGINT)
        result = run.finish()
        check_balanced(result)
        assert verify(result, hosts.path)["incomplete"] == 0


def test_a_signal_to_all_processes_at_once_drains_a_run_on_hosts():
    with Hosts() as hosts, hosts.run() as run:
        run.wait_for_events(500)
        pids = descendants(run.process.pid)
        for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):  # so that nobody ends before it has got its own
            for pid in pids:
                os.kill(pid, number)
        result = run.finish()
        check_balanced(result)
        assert result["events"]["lost"] == 0, result["error"]
        assert verify(result, hosts.path)["incomplete"] == 0


def test_processes_on_hosts_end_with_the_launcher():
    with Hosts() as hosts, hosts.run() as run:
        run.wait_for_events(100)
        started = descendants(run.process.pid)[1:]
        assert len(started) >= 10, "a process for the connection, and one for the nodes, of each host"
        run.process.kill()
        for pid in started:
            wait_until(lambda: is_gone(pid), "the processes of the run end")


def test_a_host_that_dies_is_a_node_that_dies_and_can_be_started_again():
    with Hosts() as hosts, hosts.run() as run:
        run.wait_for_events(500)
        run.kill("bu1")
        line = run.wait_for(r"bu1 died: (.*)$")[1]
        assert line.startswith(f"the connection to host 127.0.0.5 ({hosts.list}:6) has ended; start it again with: "), line
        words = shlex.split(line.split("start it again with: ", 1)[1])
        assert words[words.index("--hosts") + 1] == str(hosts.list), words
        with Run(*words[2:], env=hosts.environment, cwd=hosts.path) as again:
            run.wait_for("builder unit 'bu1' has joined")
            run.wait_for_events(500)
            run.signal()
            result = run.finish()
            again.finish()
        check_balanced(result)
        assert verify(result, hosts.path)["incomplete"] == 0


def test_a_process_that_dies_on_its_host_is_started_again_there():
    with Hosts() as hosts, hosts.run("--set", "run.restart=true") as run:
        run.wait_for_events(500)
        os.kill(descendants(run.pid("bu0"))[-1], signal.SIGKILL)
        run.wait_for(r"bu0 died: killed by signal 9 \(Killed\); starting it again")
        run.wait_for("builder unit 'bu0' has joined")
        run.wait_for_events(500)
        run.signal()
        result = run.finish()
        check_balanced(result)
        assert result["nodes"]["bu0"]["starts"] == 2


def test_a_host_without_the_program_ends_the_run_with_one_line_that_names_it():
    with Hosts() as hosts:
        lines = hosts.list.read_text().splitlines()
        lines[4] = "127.0.0.4 sh -c 'echo no fanin here >&2; exit 127'"
        hosts.write("hosts", "\n".join(lines))
        with hosts.run() as run:
            run.wait_for(re.escape(f"bu0 died: host 127.0.0.4 ({hosts.list}:5): no fanin here; the run cannot begin without it"))
            result = run.finish(1)
            assert result["error"].startswith("bu0: host 127.0.0.4"), result["error"]


def test_what_cannot_be_is_refused_in_one_line():
    with Hosts() as hosts:
        hosts.write("few", "a\nb\n")
        hosts.write("wrong", "a\nb 'c\n")
        for words, reason in (
            (["--hosts", "few"], "few: has 2 hosts, and 5 are needed, a process a host: add lines; a host may be named twice"),
            (["--hosts", "wrong"], "wrong:2: has a ' that is not closed"),
            (["--hosts", "none"], "none: cannot be opened: No such file"),
            (["--hosts", hosts.list, "--set", "network.url=shm"], "shm:// does not reach other hosts: use tcp"),
            (["--hosts", hosts.list, "--testbed"], "--hosts"),
        ):
            assert reason in hosts.refused(2, *words), words
        hosts.environment["FANIN_TESTBED"] = str(hosts.path / "testbed")
        assert "no testbed is up: ./dev testbed up NxM" in hosts.refused(2, "--testbed")
        (hosts.path / "testbed").mkdir()
        (hosts.path / "testbed").chmod(0o777)
        assert "others may write there" in hosts.refused(2, "--testbed")
