"""Every line of docs/troubleshooting.md comes from the real command. The page is the list: each of its headings has a function here
that provokes what the page shows under it."""

import contextlib
import fcntl
import itertools
import os
import re
import socket
import subprocess
import sys

import pytest
from fanin_run import FANIN, SOURCE, Folder, Port, Run, fanin, h5py
from full_disk_test import small_disk
from two_stage_test import stages

sys.path.append(str(SOURCE / "examples/receive"))
from send_fragments import PlainSender  # noqa: E402

PAGE = dict(re.findall(r"^### (.+)\n```\n(.+)\n```\n\w", (SOURCE / "docs/troubleshooting.md").read_text(), re.M))
PROVOKED = {}
RECEIVE = """
[run]
output = "{output}"
[network]
url = "tcp://127.0.0.1"
[event]
deadline = "200ms"
[buffers]
readout = "16MiB"
builder = "48MiB"
huge_pages = "off"
[source]
type = "receive"
listen = "tcp://127.0.0.1:{port}"
wait_for_sender = true
fragment_max = "1KiB"
[[readout]]
source = [{{ id = 1, count = {sources} }}]
[[builder]]
"""


def provokes(heading):
    def keep(function):
        PROVOKED[heading] = function
        return function
    return keep


def pattern(line):
    """Of a line of the page: its words, with anything for <...>, and the time that a line of the log begins with."""
    parts = re.split(r"<[a-z]+>", line)
    return r"^(\d\d:\d\d:\d\d\.\d+ )?" + ".+".join(re.sub(r"(\\ )+", r"\\s+", re.escape(part)) for part in parts) + "$"


@pytest.mark.parametrize("heading", PAGE)
def test_each_line_on_the_page_comes(heading):
    with Folder() as folder:
        PROVOKED[heading](folder, pattern(PAGE[heading]))


def test_each_problem_on_the_page_has_its_line_and_is_provoked():
    headings = re.findall(r"^### (.+)$", (SOURCE / "docs/troubleshooting.md").read_text(), re.M)
    assert headings == list(PAGE) and set(headings) == set(PROVOKED) and len(headings) == 20
    for line in PAGE.values():
        assert len(re.sub(r"<[a-z]+>", "", line)) > 20, f"it fits anything: {line}"


def said(done, line):
    output = done.stdout + done.stderr
    assert re.search(line, output, re.M), f"no {line} in:\n{output}"


def without_rights():
    """Words before a command: as any other user it may not write where that is forbidden, nor listen at each port."""
    return ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"] if os.geteuid() == 0 else []


def receive(folder, port, sources=1):
    return folder.write("run.toml", RECEIVE.format(output=folder.path / "out", port=port, sources=sources))


class Received:
    """A run of `receive` sources whose senders are here."""

    def __init__(self, folder, sources=1):
        self.folder, self.sources = folder, sources

    def __enter__(self):
        self.port = Port().__enter__()
        self.run = Run(receive(self.folder, self.port.number, self.sources))
        for _ in range(self.sources):
            self.run.wait_for("waits for fragments")
        return self

    def __exit__(self, *exception):
        self.run.__exit__(*exception)
        self.port.__exit__(*exception)

    def sender(self, source=1):
        return PlainSender(f"tcp://127.0.0.1:{self.port.number}", source)


def send(sender, numbers, size=100):
    for number in numbers:
        sender.send(number, number.to_bytes(4, "big") * (size // 4))


@provokes("The command ends at once and names a key")
def unknown_key(folder, line):
    said(fanin("run", folder.small(more='[storage]\nmaxfile = "1GiB"\n')), line)


@provokes("The command ends at once and names a host")
def unknown_host(folder, line):
    said(fanin("run", folder.small(), "--set", "network.url=tcp://no-such-host.invalid"), line)


@provokes("The command ends at once and names the output folder")
def folder_that_cannot_be_written(folder, line):
    (folder.path / "out").mkdir(mode=0o555)
    said(subprocess.run([*without_rights(), FANIN, "run", folder.small()], capture_output=True, text=True), line)


@provokes("The command ends at once and names huge pages")
def no_huge_pages(folder, line):
    said(fanin("run", folder.small(), "--set", "buffers.huge_pages=required", "--set", "buffers.readout=50TiB"), line)


@provokes("A port is in use")
def port_in_use(folder, line):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said(fanin("run", receive(folder, taken.getsockname()[1])), line)


@provokes("A port below 1024 is refused")
def port_below_1024(folder, line):
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start") as file:
        if int(file.read()) < 1024:
            pytest.skip("this host gives every program each port")
    said(subprocess.run([*without_rights(), FANIN, "run", receive(folder, 1023)], capture_output=True, text=True), line)


@provokes("Nothing happens after the start, and the log names a lock")
def run_number_is_locked(folder, line):
    (folder.path / "out").mkdir()
    with open(folder.path / "out/.last_run_number.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with Run(folder.small()) as run:
            run.wait_for(line)


@provokes("A node is refused because of its name")
def two_nodes_with_one_name(folder, line):
    with Run(folder.small()) as run:
        url = run.url()
        run.wait_for_events(1)
        with Run(folder.path / "run.toml", "--node", "ru1", "--set", f"network.control={url}") as second:
            second.wait_for(line)


@provokes("The run does not begin")
def no_sender(folder, line):
    with Received(folder) as received:
        received.run.wait_for(line)


@provokes("A sender is disconnected as soon as it has connected")
def sender_of_another_source(folder, line):
    with Received(folder) as received:
        received.sender(9)
        received.run.wait_for(line)


@provokes("Events lack a source that has stopped sending")
def silent_source(folder, line):
    with Received(folder, 2) as received:
        one, other = received.sender(1), received.sender(2)
        send(one, range(100))
        send(other, range(50))
        received.run.wait_for(line)


@provokes("Large fragments are dropped")
def fragments_too_large(folder, line):
    with Received(folder) as received:
        sender = received.sender()
        send(sender, range(4))
        send(sender, range(4, 5), 3000)
        received.run.wait_for(line)


@provokes("A source is dropped after its counter has wrapped")
def counter_wraps(folder, line):
    with Received(folder) as received:
        sender = received.sender()
        send(sender, range(65400, 65536))
        received.run.wait_for(" 136 events ")
        send(sender, range(100), 200)
        received.run.wait_for(line)


@provokes("A front end was restarted in mid-run")
def front_end_is_restarted(folder, line):
    with Received(folder) as received:
        sender = received.sender()
        send(sender, range(100))
        received.run.wait_for(" 100 events ")
        send(sender, range(150), 200)
        received.run.wait_for(line)


@provokes("A run begins with data that were left over, and then accepts nothing")
def left_over(folder, line):
    with Received(folder, 2) as received:
        one, other = received.sender(1), received.sender(2)
        send(other, range(5001, 5021))
        received.run.wait_for(" 20 events ")

        with contextlib.suppress(OSError, AssertionError):  # the run has ended
            for number in itertools.count(1):
                send(one, [number])
                send(other, [number])
                if number % 10 == 0:
                    received.run.wait_for(r" events ")  # a progress line: it ends before the numbers pass those left over
        received.run.finish(status=1)
        assert re.search(line, received.run.text(), re.M), received.run.text()


@provokes("A group of a two-stage run delivers nothing")
def group_of_another_run(folder, line):
    with Port() as left, Port() as right:
        slices, groups = stages(folder, (left, right))
        with Run(groups[0], "--set", "run.number=5") as group, Run(slices[0], "--set", "run.number=6"):
            group.wait_for(line)


@provokes("A process dies")
def process_dies(folder, line):
    with Run(folder.small()) as run:
        run.wait_for_events(1)
        run.kill("bu1")
        run.wait_for(line)


@provokes("Events are no longer built, and the buffers fill")
def disk_is_full(folder, line):
    (folder.path / "out").mkdir()
    with Run(folder.small(rate="10kHz"), prefix=small_disk(folder.path / "out")) as run:
        run.wait_for(line)


@provokes("A run file is destroyed during the run")
def file_is_destroyed(folder, line):
    with Run(folder.small(builders=1)) as run:
        run.wait_for_events(100)
        [file] = folder.path.glob("out/*.h5")
        os.truncate(file, 0)
        run.wait_for(line)


@provokes("A run file cannot be read")
def file_is_open_elsewhere(folder, line):
    with Run(folder.small(builders=1), "--events", 100) as run:
        [file] = run.finish()["files"]
    with h5py().File(file, "a"):
        said(fanin("verify", file), line)
