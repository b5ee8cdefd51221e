"""What a laboratory's rate costs: how often the processes of an event builder wake up, and how many control messages they
exchange, files written."""

import json
import re
import socket
import struct
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.fanin_run import SOURCE, Folder, Run, check_balanced

RUNS_ALONE = True  # it measures: CMake sees to it that nothing runs beside it
NODES = ["evm", "ru0", "ru1", "bu0", "bu1"]
RECEIVING = """
[run]
output = "{output}"
[network]
url = "tcp://127.0.0.1"
[[readout]]
source = [{{ id = 0x300, type = "receive", listen = "tcp://127.0.0.1" }}]
[[readout]]
source = [{{ id = 0x301, type = "receive", listen = "tcp://127.0.0.1" }}]
[[builder]]
count = 2
"""


def wake_ups(pid):
    """Voluntary context switches of all threads, as ru_nvcsw."""
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        total += int(next(line for line in status.read_text().splitlines() if line.startswith("voluntary")).split()[1])
    return total


def wake_ups_per_second(run):
    """By process, while some seconds' events are built."""
    pids = [run.process.pid, *(run.pid(node) for node in NODES)]
    run.wait_for(r" [1-9]\d* events ")
    before, start = [wake_ups(pid) for pid in pids], time.monotonic()
    run.wait_for(r" \d+ events ")
    run.wait_for(r" \d+ events ")
    seconds = time.monotonic() - start
    return {name: (wake_ups(pid) - first) / seconds for name, pid, first in zip(["launcher", *NODES], pids, before)}


def control_messages(run):
    """Sent and received by the event manager: all there are. Each carries what a node has to say at that moment."""
    passed = json.loads(re.search(r"evm +trace: ({.*})", run.text())[1])
    return passed["messages_sent"] + passed["messages_received"]


@pytest.mark.parametrize("rate", ["1kHz", "10kHz"])
def test_few_wake_ups_serve_many_events(rate):
    with Folder() as folder:
        quick = (SOURCE / "examples/quickstart.toml").read_text().replace("1200B", "200B").replace("600B", "100B")
        config = folder.write("quick.toml", quick)
        with Run(config, "--set", f"trigger.rate={rate}", "--set", f"run.output={folder.path}",
                 "--set", "network.control=trace+tcp://127.0.0.1") as run:
            rates = wake_ups_per_second(run)
            run.signal()
            result = run.finish()
        check_balanced(result)
        assert sum(rates.values()) <= 600, rates
        assert control_messages(run) / result["duration_s"] <= 800


@contextmanager
def sending(port, source, events=sys.maxsize):
    """A detector at 1 kHz, one fragment at a time, in a thread. After so many events it has nothing, until it ends."""
    ends = threading.Event()

    def send():
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(struct.pack("<8sHHI", b"FANINRCV", 1, 0, source))
            event = 0
            while not ends.wait(0.001 if event < events else None):
                connection.sendall(struct.pack("<HBBIQII", 0xF4A6, 0, 0, source, event, 200, 0) + bytes(200))
                event += 1
            connection.sendall(struct.pack("<HBBIQII", 0xF4A6, 2, 0, source, 0, 0, 0))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


@contextmanager
def receiving(folder, **more):
    with Run(folder.write("run.toml", RECEIVING.format(output=folder.path / "out"))) as run:
        ports = {}
        while len(ports) < 2:
            found = run.wait_for(r"(0x30[01]): waits for fragments at tcp://127.0.0.1:(\d+)")
            ports[int(found[1], 16)] = int(found[2])
        with sending(ports[0x300], 0x300, **more), sending(ports[0x301], 0x301, **more):
            yield run
        check_balanced(run.finish())


def test_fragments_that_come_one_by_one_are_read_together():
    with Folder() as folder, receiving(folder) as run:
        rates = wake_ups_per_second(run)
        assert max(rates["ru0"], rates["ru1"]) <= 400, rates  # a fragment at a time: 1,000 more


def test_senders_that_have_nothing_wake_nobody():
    with Folder() as folder, receiving(folder, events=100) as run:
        run.wait_for(" 100 events ")
        rates = wake_ups_per_second(run)
        assert max(rates["ru0"], rates["ru1"]) <= 60, rates


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
