"""Nodes on two networks, one of which is lost: in a network namespace, where addresses come and go."""

import os
import shutil
import signal
import subprocess

import pytest

from fanin_run import Folder, Run, check_balanced, verify

os.environ["PATH"] += ":/usr/sbin:/sbin"


class Network:
    """A network namespace; ends with the context."""

    def __enter__(self):
        needed = "no network namespace here: it needs unshare, nsenter, ip (iproute2) and a kernel that allows it"
        if any(shutil.which(tool) is None for tool in ("unshare", "nsenter", "ip")):
            pytest.skip(needed)
        command = ["unshare", "--map-root-user", "--net", "sh", "-c", "ip link set lo up && echo ready && exec cat"]
        self.holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            pytest.skip(needed)
        self.prefix = ["nsenter", "--user", "--preserve-credentials", "--net", f"--target={self.holder.pid}"]
        return self

    def __exit__(self, *exception):
        self.holder.kill()
        self.holder.communicate()

    def address(self, verb, address):
        subprocess.run([*self.prefix, "ip", "address", verb, address, "dev", "lo"], check=True)


def test_a_run_survives_the_loss_of_one_of_two_rails():
    with Network() as network, Folder() as folder:
        for rail in ("10.9.0.1/32", "10.8.0.1/32"):
            network.address("add", rail)
        config = folder.small()
        config.write_text(config.read_text().replace("[[builder]]", """[[builder]]
url = ["tcp://10.9.0.1", "tcp://10.8.0.1"]"""))
        with Run(config, "--set", "event.deadline=2min", "--duration", "110s",
                 prefix=network.prefix) as run:
            run.wait_for("run 1 begins")
            run.wait_for_events(1000)
            network.address("delete", "10.8.0.1/32")
            run.wait_for(r"tcp://10\.8\.0\.1:\d+ is closed, continuing over tcp://10\.9\.0\.1:\d+")
            run.wait_for_events(1000)
            run.signal(signal.SIGINT)
            result = run.finish()
        check_balanced(result)
        assert result["events"]["lost"] == 0, "lost events"
        assert result["events"]["incomplete"] == 0, "incomplete events"
        assert result["fragments"]["lost"] == 0, "lost fragments"
        found = verify(result)
        assert found["events"] == result["events"]["built"], "events in the files"
        assert found["events"] > 2000, "nothing was built after the loss"


def test_a_run_survives_the_loss_of_the_rail_that_control_uses():
    with Network() as network, Folder() as folder:
        for rail in ("10.9.0.1/32", "10.8.0.1/32"):
            network.address("add", rail)
        config = folder.small()
        control = 'network.control=["tcp://10.9.0.1?dscp=46", "tcp://10.8.0.1?dscp=46"]'
        with Run(config, "--set", control, "--set", "event.deadline=2min", "--set", "network.dead_after=10s",
                 "--duration", "110s", prefix=network.prefix) as run:
            run.wait_for(r"listens at tcp://10\.9\.0\.1:\d+\?dscp=46 and tcp://10\.8\.0\.1:\d+\?dscp=46")
            run.wait_for("run 1 begins")
            run.wait_for_events(1000)
            network.address("delete", "10.9.0.1/32")
            for _ in range(2):  # two readout units
                run.wait_for(r"ru\d .*does not answer over tcp://10\.9\.0\.1:\d+.*: continuing over tcp://10\.8\.0\.1")
            run.wait_for_events(1000)
            run.signal(signal.SIGINT)
            result = run.finish()
        check_balanced(result)
        assert result["events"]["lost"] == 0, "lost events"
        assert result["events"]["incomplete"] == 0, "incomplete events"
        for name, node in result["nodes"].items():
            assert not name.startswith("ru") or node["starts"] == 1, f"{name} was given up"
