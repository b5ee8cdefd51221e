"""The examples as they are shipped: each of their processes is killed once, and what the README promises holds. A nightly run does
that with all of them (FANIN_EXAMPLES=all), else with the quickstart and the one that takes data from senders. Of the two stages:
two_stage_test.py."""

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from fanin_run import FANIN, SOURCE, Folder, Port, Run, check_balanced, data_file, fanin, verify
from tools_test import Tool

EXAMPLES = SOURCE / "examples"
SMALL = ("buffers.readout=16MiB", "buffers.builder=48MiB")
PROCESSES = ("network.url=tcp://127.0.0.1",)  # else all of it is one process
NODES = ("event_manager", "readout.0", "readout.1", "builder.0", "builder.1")
ON_THIS_HOST = (*(f"{node}.host={socket.gethostname()}" for node in NODES), *(f"{node}.cpu=0" for node in ("readout.0", "builder.0")),
                *(f"readout.{i}.source.0.rate=500Hz" for i in range(2)),
                *(f"{key}=tcp://127.0.0.1" for key in ("network.control", "network.data", "builder.0.url", "builder.1.url")))
SETTINGS = {
    "quickstart": SMALL, "quiet": (), "baseline/baseline": SMALL, "baseline/filter": SMALL, "folded/folded": SMALL, "timeslice/timeslice": (),
    "trapezoidal/trapezoidal": (), "trapezoidal/filter": (), "receive": SMALL, "cluster": (*SMALL, *ON_THIS_HOST),
    "replay-hld": (*SMALL, "source.loops=0", "source.rate=2kHz"),
    **{f"replay-sls{which}": (*SMALL, "source.loops=0", "source.rate=50Hz") for which in ("", "-eiger", "-scan242")},
    "plugin-filter/filter": (*SMALL, *PROCESSES), "plugin-sink/sink": (*SMALL, *PROCESSES), "plugin-source/pulse": (*SMALL, *PROCESSES)}
ALL = os.environ.get("FANIN_EXAMPLES") == "all"
CHOSEN = sorted(SETTINGS) if ALL else ["quickstart", "receive"]


def example(name, folder, port):
    """The words that start it for an hour; its plug-in is where this tree has built it."""
    config = EXAMPLES / f"{name}.toml"
    settings = [f"run.output={folder.path / 'out'}", "buffers.huge_pages=off", *SETTINGS[name]]
    plugin = re.search(r'^path = "\S*build/(\w+)\.so"', config.read_text(), re.M)
    if plugin:
        built = next(Path(FANIN).resolve().parent.parent.rglob(f"libfanin_test_{plugin[1]}.so"))
        config = folder.write("run.toml", config.read_text().replace(plugin[0], f'path = "{built}"'))
    if name == "cluster":  # its hosts have several NUMA nodes
        config = folder.write("run.toml", re.sub("^numa_node.*$", "", config.read_text(), flags=re.M))
    if name == "receive":
        settings.append(f"source.listen=tcp://127.0.0.1:{port.number}")
    if name == "replay-hld":
        settings.append(f"source.path={data_file('jpet-hld/xx14099113231.hld')}")
    if name.startswith("replay-sls"):
        files = re.search(r'^path = "\S*/sls-modules/(\S+)"', config.read_text(), re.M)[1]
        settings.append(f"source.path={data_file('sls-modules')}/{files}")
    return [config, "--duration", "1h", *(word for setting in settings for word in ("--set", setting))]


@contextlib.contextmanager
def started(*commands):
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for command in commands]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def senders(name, port):
    """Of an example that needs some; they go on longer than any test."""
    command = (sys.executable, EXAMPLES / "receive/send_fragments.py", f"tcp://127.0.0.1:{port.number}", "--rate", "500", "--events", "1000000")
    return [[*command, "--source", str(source)] for source in (1, 2)] if name == "receive" else []


@pytest.mark.parametrize("name", CHOSEN)
def test_each_process_of_an_example_may_die(name):
    processes = kinds = ["evm"]
    while processes:
        process = processes.pop()
        with Folder() as folder, Port() as port, Run(*example(name, folder, port)) as run, started(*senders(name, port)):
            run.wait_for_events(1)
            run.kill(process)
            if process == "evm":  # the run ends; the others stand in the log
                processes = sorted(set(re.findall(r" debug +(\S+) is process \d+$", run.text(), re.M)) - {"evm"})
                kinds = [other[:2] for other in processes]
                result = run.finish(1)
            else:
                again = run.wait_for(rf"\b{process} died: killed by signal 9 \(Killed\)(?:; start it again with: (.*))?")[1]
                # Where nobody else does its work, it is started again as the log says.
                alone = again and kinds.count(process[:2]) == 1
                with started(*([shlex.split(again)] if alone else [])) as restarted:
                    run.wait_for_events(1)
                    run.signal()
                    result = run.finish()
                    for node in restarted:
                        assert node.wait() == 0, f"{process} was started again"
                check_balanced(result)
            if name != "plugin-sink/sink":  # its files are its own
                verify(result)


def test_the_one_process_of_an_example_may_die():
    with Folder() as folder:
        with Run(EXAMPLES / "inproc.toml", "--duration", "1h", "--set", f"run.output={folder.path / 'out'}") as run:
            run.wait_for_events(1)
            run.process.kill()
            run.process.wait()
        files = sorted((folder.path / "out").glob("*.h5"))
        found = fanin("verify", *files, "--json", "-")
        assert found.returncode == 0, found.stderr


class Sockets:
    """The programs of examples/sockets, built here, at an address of their own."""

    def __init__(self, folder):
        self.folder = folder.path
        self.url, self.next = (f"shm://example-{os.getpid()}:{port}" for port in (1, 2))
        library = Path(FANIN).resolve().parent.parent / "lib"
        for program in sorted((EXAMPLES / "sockets").glob("*.cpp")):
            subprocess.run([os.environ.get("CXX", "c++"), "-std=c++23", f"-I{SOURCE}/src", program, "-o", self.folder / program.stem,
                            f"-L{library}", f"-Wl,-rpath,{library}", "-lfanin_net", "-lfmt"], check=True)

    @contextlib.contextmanager
    def killed(self, program, *arguments):
        """Killed at the end of the block."""
        with started([self.folder / program, *(arguments or (self.url,))]) as [process]:
            yield process
            process.kill()
            process.wait()

    def said(self, program, *arguments):
        return subprocess.run([self.folder / program, self.url, *arguments], check=True, capture_output=True, text=True).stdout

    def listening(self, program):
        return subprocess.Popen([self.folder / program, self.url], stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(not ALL, reason="not applicable: the programs are built by night")
def test_each_program_of_the_sockets_may_die():
    with Folder() as folder:
        programs = Sockets(folder)
        for mode in ("high-throughput", "low-latency"):  # a receiver that dies
            with Tool("send", programs.url, "--mode", mode, "--rate", "100Hz") as sender:
                for _ in range(2):
                    with programs.killed(f"{mode.replace('-', '_')}_receive"):
                        sender.wait_for("connected to")
        with Tool("receive", programs.url) as receiver:  # a sender that dies; the next one is heard to its end
            with programs.killed("high_throughput_send"):
                receiver.wait_for("has connected")
            receiver.wait_for("a connection has ended")
            programs.said("high_throughput_send")
            result = receiver.end(signal.SIGINT)
            assert 1_000_000 <= result["messages"] <= 2_000_000 and result["bytes"] == 200 * result["messages"], result
        with programs.killed("low_latency_send", programs.url, "lost"):  # before somebody listens
            pass
        receiver = programs.listening("low_latency_receive")
        programs.said("low_latency_send", "hello", "bye")
        assert receiver.communicate()[0] == "hello\nbye\n"
        with programs.killed("publish"):  # before somebody has subscribed
            pass
        subscriber = programs.listening("subscribe")
        programs.said("publish")
        assert subscriber.communicate()[0] == "1000 messages under tag 7\n"
        with Tool("publish", programs.url, "--tag", 7, "--rate", "100Hz") as publisher:
            for _ in range(2):
                with programs.killed("subscribe"):
                    publisher.wait_for("a subscriber is connected: publishing")
                publisher.wait_for("no subscriber is left")
        with Tool("receive", programs.next) as receiver, Tool("send", programs.url, "--rate", "100Hz") as sender:
            for _ in range(2):
                with programs.killed("forward", programs.url, programs.next):
                    sender.wait_for("connected to")
                    receiver.wait_for("has connected")
