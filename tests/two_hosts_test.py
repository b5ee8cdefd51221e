"""A run on two hosts that share nothing but a network: network namespaces with names and folders of their own. Each starts its nodes
by its host name, as examples/cluster.toml says; the manifest lies on the host of the event manager alone."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from fanin_run import FANIN, LONGEST_S, Folder, Run, check_balanced

os.environ["PATH"] += ":/usr/sbin:/sbin"
NEEDED = "no network namespace here: it needs unshare, nsenter, ip (iproute2) and a kernel that allows it"
NAMES = ("daq-a", "daq-b")

CONFIGURATION = """
[run]
output = "{data}"
[network]
control = "tcp://:7000"
data = "tcp"
grace = "200ms"
dead_after = "1s"
give_up_after = "2s"
[trigger]
rate = "500Hz"
[buffers]
readout = "32MiB"
builder = "48MiB"
huge_pages = "off"
[event]
batch_events = 64
[source]
type = "emulator"
size = "1000B"
fragment_max = "32KiB"
[event_manager]
host = "daq-a"
[[readout]]
host = "daq-a"
source = [{{ count = 2 }}]
[[readout]]
host = "daq-b"
source = [{{ count = 2 }}]
[[builder]]
host = "daq-a"
[[builder]]
host = "daq-b"
"""


class Hosts(Folder):
    """Two hosts and a cable. Each has its own folder at the same path, `data`."""

    def __enter__(self):
        super().__enter__()
        if any(shutil.which(tool) is None for tool in ("unshare", "nsenter", "ip")):
            pytest.skip(NEEDED)
        self.holders, self.prefixes = [], []
        self.data = self.path / "data"
        self.data.mkdir()
        self.names = self.write("names", "127.0.0.1 localhost\n10.89.0.1 daq-a\n10.89.0.2 daq-b\n")
        self.configuration = self.write("run.toml", CONFIGURATION.format(data=self.data))
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception):
        for holder in self.holders:
            holder.kill()
            holder.communicate()
        super().__exit__(*exception)

    def make(self):
        for i, name in enumerate(NAMES):
            own = self.path / name
            own.mkdir()
            script = (f"hostname {name} && mount --bind {self.names} /etc/hosts && mount --bind {own} {self.data} && "
                      "ip link set lo up && echo ready && exec cat")
            # The second one is made from the first one, whose rights it needs.
            outer = ["unshare", "--map-root-user"] if i == 0 else [*self.prefixes[0], "unshare"]
            holder = subprocess.Popen([*outer, "--net", "--mount", "--uts", "sh", "-c", script],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self.holders.append(holder)
            if holder.stdout.readline() != "ready\n":
                pytest.skip(NEEDED)
            self.prefixes.append(["nsenter", "--user", "--preserve-credentials", "--net", "--mount", "--uts",
                                  f"--target={holder.pid}", "--"])
        self.enter(0, "ip", "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", str(self.holders[1].pid))
        for i in range(2):
            self.enter(i, "ip", "address", "add", f"10.89.0.{i + 1}/24", "dev", "cable")
            self.enter(i, "ip", "link", "set", "cable", "up")

    def enter(self, host, *words):
        subprocess.run([*self.prefixes[host], *words], check=True, capture_output=True, text=True)

    def run(self, host, *words):
        return Run(self.configuration, *words, prefix=self.prefixes[host], cwd=self.path)

    def verify(self, host, *files):
        """The exit status, and what is found there."""
        command = [*self.prefixes[host], FANIN, "verify", "--json", "-", *map(str, files)]
        done = subprocess.run(command, cwd=self.path, capture_output=True, text=True, timeout=LONGEST_S)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)


def test_each_host_starts_its_nodes_by_its_name_and_the_manifest_serves_where_it_lies():
    with Hosts() as hosts, hosts.run(1) as there, hosts.run(0) as here:
        assert here.url().endswith(":7000")
        here.wait_for("run 1 begins")
        here.wait_for_events(300)
        here.signal(signal.SIGINT)
        result, elsewhere = here.finish(), there.finish()
        check_balanced(result)
        assert sorted(elsewhere["nodes"]) == ["bu1", "ru1"] and elsewhere["ok"], elsewhere
        built = result["events"]["built"]
        assert built == sum(result["nodes"][node]["events"] for node in ("bu0", "bu1")) > 300

        manifest = Path(result["manifest"])
        status, found = hosts.verify(0, manifest)
        assert status == 0, found
        assert found["events"] == result["nodes"]["bu0"]["events"], "those of the files of this host"
        assert any("daq-b" in note for note in found["notes"]), found["notes"]
        # The other host has its files and no manifest.
        assert [file.name for file in (hosts.path / NAMES[1]).glob("*.json")] == []
        status, found = hosts.verify(1, *elsewhere["files"])
        assert status == 0 and found["events"] == result["nodes"]["bu1"]["events"], found
        # Where all can be read, the numbers of the whole run are compared.
        all_files = [hosts.path / name / file.name for name in NAMES for file in (hosts.path / name).glob("*.h5")]
        status, found = hosts.verify(0, manifest, *(file for file in all_files if file.parent.name == NAMES[1]))
        assert status == 0 and found["events"] == built, found
        # A file of this host that is missing is a problem, one of another host is not.
        next(file for file in all_files if file.parent.name == NAMES[0]).unlink()
        status, found = hosts.verify(0, manifest)
        assert status == 1 and found["problems"], found


def test_when_the_event_manager_dies_each_host_sums_up_its_own_nodes():
    with Hosts() as hosts, hosts.run(1) as there, hosts.run(0) as here:
        here.wait_for("run 1 begins")
        here.wait_for_events(300)
        here.kill("evm")
        here.wait_for("evm died: killed by signal 9.*what was built is safe")
        result, elsewhere = here.finish(1), there.finish(1)
        assert result["not_summed"] == ["ru1", "bu1"], result["not_summed"]
        assert result["error"].endswith("; without those of ru1, bu1"), result["error"]
        assert sorted(elsewhere["nodes"]) == ["bu1", "ru1"], elsewhere
        for host, report, node in ((0, result, "bu0"), (1, elsewhere, "bu1")):
            status, found = hosts.verify(host, *report["files"])
            assert status == 0 and found["events"] == report["nodes"][node]["events_stored"] > 0, found
        assert re.search(r"bu1 +\d+ events", there.text()), "it is shown there too"
        status, found = hosts.verify(0, next((hosts.path / NAMES[0]).glob("*.manifest.json")))
        assert status == 0 and any("did not end in good order" in note for note in found["notes"]), found
