"""A run that run control starts, shows and stops: what it is told over the socket that it has given to `fanin run`."""

import contextlib
import json
import socket
import subprocess

from fanin_run import FANIN, LONGEST_S, Folder, check_balanced

MONITORING = "[monitoring]\nevery = 100\n"


class Controlled:
    """`fanin run --controlled` under way, and a connection to it."""

    def __init__(self, folder, *arguments):
        self.end = folder.path / "end.json"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder.path / "s"))
            listener.listen()
            self.process = subprocess.Popen(
                [FANIN, "run", *map(str, arguments), "--controlled", "--run-id", "77", "--set", "run.number=5",
                 "--control-fd", str(listener.fileno()), "--control-end", str(self.end)], pass_fds=[listener.fileno()])
        self.path = str(folder.path / "s")
        self.connections = contextlib.ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.connections.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def connect(self):
        """The lines of a new connection, as one writes and reads them."""
        connection = self.connections.enter_context(socket.socket(socket.AF_UNIX))
        connection.settimeout(LONGEST_S)
        connection.connect(self.path)
        return self.connections.enter_context(connection.makefile("rw"))

    def finish(self):
        assert self.process.wait(timeout=LONGEST_S) == 0, "exit status"
        end = json.loads(self.end.read_text())
        check_balanced(end["result"])
        return end["result"]


def request(lines, what):
    lines.write(json.dumps({"request": what}) + "\n")
    lines.flush()


def wait_for(lines, wanted):
    """The first report from here on for which that is so."""
    for line in lines:
        report = json.loads(line)
        if "report" in report and wanted(report):
            return report
    raise AssertionError("the connection has ended")


def of_kind(kind, node, wanted=lambda report: True):
    return lambda report: report["report"] == kind and report["node"] == node and wanted(report)


def test_run_control_sees_what_a_run_has_done_and_what_its_processes_use():
    with Folder() as folder, Controlled(folder, folder.small(more=MONITORING)) as run:
        lines = run.connect()
        wait_for(lines, of_kind("progress", "evm", lambda report: report.get("held") and report["ready"]))
        held = wait_for(lines, of_kind("summary", "evm"))
        assert {name for name, node in held["nodes"].items() if node["alive"]} == {"ru0", "ru1", "bu0", "bu1"}, held
        assert held["events"]["built"] == 0 and "latency_us" not in held, held
        request(lines, "start")
        shown = wait_for(lines, of_kind("summary", "evm", lambda report: report["events"]["built"] > 0))
        assert shown["time_s"] > 0 and shown["latency_us"]["p50"] > 0, shown
        used = wait_for(lines, of_kind("usage", "ru1", lambda report: all(
            source["read"] > 0 for source in report["sources"].values())))
        assert used["process"] == "ru1" and used["cpu_s"] > 0 and used["rss_bytes"] > 0, used
        for source in used["sources"].values():
            assert 300 < source["bytes"] / source["read"] < 3000, used
        assert wait_for(lines, of_kind("usage", "evm"))["process"] == "evm"
        later = run.connect()  # it is told at once how things stand
        for kind, node in (("summary", "evm"), ("usage", "bu0")):
            found = wait_for(later, of_kind(kind, node))
        assert int(found["monitoring_url"].rpartition(":")[2]) > 0, found
        request(later, "stop")
        last = wait_for(later, of_kind("result", "evm"))
        result = run.finish()
        assert last["events"] == result["events"] and result["run"] == 5, result
        for name, source in result["sources"].items():
            assert shown["sources"][name].keys() <= source.keys(), source
