"""Several hosts: network namespaces with host names, addresses and folders of their own. Each starts its part of the run
by its name, as users do. Skipped where namespaces cannot be made (it needs root, or user namespaces)."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from fanin_run import FANIN, Folder, Run, check_balanced

HOSTS = ["daq-a", "daq-b"]

CONFIG = """
[run]
output = "{output}"
[network]
control = "tcp://daq-a:7000"
[trigger]
rate = "2kHz"
[buffers]
readout = "32MiB"
builder = "48MiB"
huge_pages = "off"
[source]
type = "emulator"
size = "1000B"
fragment_max = "32KiB"
[event_manager]
host = "daq-a"
[[readout]]
host = "daq-a"
source = [{{ id = 0x100, count = 2 }}]
[[readout]]
host = "daq-b"
source = [{{ id = 0x200, count = 2 }}]
[[builder]]
host = "daq-a"
[[builder]]
host = "daq-b"
"""


class Hosts:
    """One process per host holds its namespaces: of the network, of the host name, of what is mounted."""

    def __init__(self, folder):
        self.holders = []
        self.output = folder / "data"
        self.output.mkdir()
        for name in HOSTS:
            (folder / name).mkdir()
            names = folder / f"hosts_{name}"  # as Debian writes it: a host knows itself by an address that is no use to others
            names.write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n" + "".join(
                f"10.77.0.{i + 1} {other}\n" for i, other in enumerate(HOSTS) if other != name))
            script = (f"hostname {name} && mount --bind {names} /etc/hosts && "
                      f"mount --bind {folder / name} {self.output} && ip link set lo up && echo ready && exec cat")
            self.holders.append(self.unshare(script))
        first, second = (holder.pid for holder in self.holders)
        self.enter(0, ["ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", str(second)])
        for i in range(len(HOSTS)):
            self.enter(i, ["ip", "address", "add", f"10.77.0.{i + 1}/24", "dev", "eth0"])
            self.enter(i, ["ip", "link", "set", "eth0", "up"])

    @staticmethod
    def unshare(script):
        # Without root the first namespace is one of users, in which we are root.
        command = ["unshare", "--mount", "--uts", "--net", "--propagation", "private", "sh", "-c", script]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if holder.stdout.readline() != "ready\n":
            pytest.skip(f"no network namespaces can be made here: {holder.communicate()[1].strip()}")
        return holder

    def command(self, host, words):
        return ["nsenter", "--mount", "--uts", "--net", f"--target={self.holders[host].pid}", f"--wd={os.getcwd()}", *words]

    def enter(self, host, words):
        done = subprocess.run(self.command(host, words), capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"{' '.join(words)}: {done.stderr.strip()}")

    def fanin(self, host, *arguments):
        return subprocess.run(self.command(host, [FANIN, *map(str, arguments)]), capture_output=True, text=True)

    def run(self, host, *arguments):
        return Run(*arguments, prefix=self.command(host, []))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for holder in self.holders:
            holder.kill()
            holder.communicate()


def needs_programs():
    if os.geteuid() != 0:
        pytest.skip("needs root: other users run it with: unshare --user --map-root-user --mount --net python3 " + __file__)
    for program in ("unshare", "nsenter", "ip", "mount", "hostname"):
        if not shutil.which(program):
            pytest.skip(f"no network namespace without {program}, which is not installed")


def verified(hosts, host, *files, status=0):
    done = hosts.fanin(host, "verify", "--json", "-", *files)
    assert done.returncode == status, f"fanin verify on {HOSTS[host]}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def test_a_run_on_two_hosts_is_started_by_their_names_and_verified_on_each():
    needs_programs()
    with Folder() as folder, Hosts(folder.path) as hosts:
        config = folder.write("run.toml", CONFIG.format(output=hosts.output))
        with hosts.run(0, config, "--events", 2000) as first, hosts.run(1, config) as second:
            result, other = first.finish(), second.finish()
        check_balanced(result)
        assert result["events"]["built"] == 2000, "events"
        assert other["ok"] and sorted(other["nodes"]) == ["bu1", "ru1"], f"the second host: {other}"
        manifest = result["manifest"]
        own = [path for path in result["files"] if "_bu0_" in path]
        # Where the manifest is: the files of this host, and it is said that there are more.
        here = verified(hosts, 0, manifest)
        assert 0 < here["events"] < 2000, f"{here['events']} events on one host"
        assert "_bu1_i1_0001.h5 of host daq-b belongs to the run" in " ".join(here["notes"]), here["notes"]
        # Where it is not: the files by themselves.
        there = [path for path in result["files"] if "_bu1_" in path]
        assert here["events"] + verified(hosts, 1, *there)["events"] == 2000, "events on both hosts"
        # All together, wherever they lie: the manifest's sums hold.
        gathered = [folder.path / "daq-b" / Path(path).name for path in there]
        assert verified(hosts, 0, manifest, *gathered)["events"] == 2000, "events"
        # A file of this host that is gone is missed; one of another host is not.
        (folder.path / "daq-a" / Path(own[0]).name).unlink()
        gone = verified(hosts, 0, manifest, *gathered, status=1)
        assert any("No such file" in line for line in gone["problems"]), gone["problems"]


def test_when_the_event_manager_dies_each_host_says_what_it_has_counted():
    needs_programs()
    with Folder() as folder, Hosts(folder.path) as hosts:
        config = folder.write("run.toml", CONFIG.format(output=hosts.output))
        with hosts.run(0, config) as first, hosts.run(1, config, "--set", "network.dead_after=1s", "--set",
                                                   "network.give_up_after=2s") as second:
            first.wait_for("run 1 begins")
            first.wait_for_events(200)
            first.kill("evm", signal.SIGKILL)
            result = first.finish(status=1)
            other = second.finish(status=1)
        assert result["not_summed"] == ["ru1", "bu1"], "nodes that are not in the sums"
        assert "without those of ru1, bu1" in result["error"], result["error"]
        assert result["events"]["built"] == result["nodes"]["bu0"]["events_stored"], "events of this host"
        stored = other["nodes"]["bu1"]
        assert f"{stored['events_stored']} events of {stored['fragments_stored']} fragments stored" in second.text(), (
            second.text())
        assert f"{other['nodes']['ru1']['fragments_read']} fragments read" in second.text(), second.text()
        files = [folder.path / HOSTS[i] / Path(path).name for i, some in enumerate((result, other)) for path in some["files"]]
        assert verified(hosts, 0, *files)["events"] == result["events"]["built"] + stored["events_stored"], "events"
