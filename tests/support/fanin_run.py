"""What the tests of the real processes share: a run to watch, to kill parts of, and to look at afterwards.

Each function test_...() of tests/*_test.py is a ctest of its own, run by pytest. Nothing sleeps: a test waits for a line, a
process or a file, and a line that does not come fails it with all that was written.
"""

import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

FANIN = os.environ.get("FANIN", "build/release/bin/fanin")
SOURCE = Path(os.environ.get("FANIN_SOURCE_DIR", Path(__file__).resolve().parent.parent.parent))
URL = "tcp://127.0.0.1"  # of small(); a script may set another
RATE = "2kHz"  # likewise
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the tests themselves run under nohup
LONGEST_S = int(os.environ.get("FANIN_LONGEST", "120"))  # for anything that is waited for: a loaded machine, a sanitizer

# Small pools, so that a test starts quickly; a rate that two cores carry with a sanitizer too.
SMALL = """
[run]
output = "{output}"
[network]
url = "{url}"
protocol = "{protocol}"
[trigger]
rate = "{rate}"
[buffers]
readout = "16MiB"
builder = "48MiB"
huge_pages = "off"
[source]
type = "emulator"
size_mean = "1000B"
size_sigma = "500B"
fragment_max = "32KiB"
[[readout]]
count = {readouts}
source = [{{ id = 0x100, count = 2 }}]
[[builder]]
count = {builders}
"""


def data_file(path):
    """A recorded file, or the test is skipped."""
    for place in (os.environ.get("FANIN_DATA"), SOURCE / ".." / "shared" / "data", SOURCE / "data"):
        if place and (Path(place) / path).exists():
            return (Path(place) / path).resolve()
    pytest.skip(f"{path} is not here: ./dev data says where to get it")


def h5py():
    try:
        import h5py as module
    except ImportError:
        pytest.skip("h5py is not installed")
    return module


class Folder:
    """A temporary folder to run in."""

    def __enter__(self):
        self.path = Path(tempfile.mkdtemp(prefix="fanin-test-"))
        return self

    def __exit__(self, *exception):
        shutil.rmtree(self.path, ignore_errors=True)

    def write(self, name, text):
        (self.path / name).write_text(text)
        return self.path / name

    def small(self, protocol="push", rate=None, readouts=2, builders=2, more=""):
        text = SMALL.format(url=URL, output=self.path / "out", protocol=protocol, rate=rate or RATE, readouts=readouts, builders=builders)
        return self.write("run.toml", text + more)


class Port:
    """A free port that nobody else gets: bound here, and not listened at."""

    def __enter__(self):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", 0))
        self.number = self.socket.getsockname()[1]
        return self

    def __exit__(self, *exception):
        self.socket.close()


def fanin(*arguments, cwd=None, env=None):
    """A command that ends by itself: its completed process."""
    return subprocess.run([FANIN, *map(str, arguments)], cwd=cwd, env=env, capture_output=True, text=True,
                          timeout=LONGEST_S)


class Run:
    """A `fanin run` under way; its standard error is read line by line."""

    def __init__(self, *arguments, cwd=None, env=None, prefix=()):
        self.result_path = Path(tempfile.mkstemp(prefix="fanin-result-")[1])
        words = [word if isinstance(word, bytes) else str(word) for word in arguments]
        command = [*prefix, FANIN, "run", *words, "--log", "debug", "--json", str(self.result_path)]
        self.process = subprocess.Popen(command, cwd=cwd, env=env, stderr=subprocess.PIPE, text=True, errors="replace")
        self.lines = []
        self.arriving = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stderr:
            self.arriving.put(line.rstrip("\n"))
        self.arriving.put(None)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.result_path.unlink(missing_ok=True)

    def text(self):
        return "\n".join(self.lines)

    def summary(self):
        """What stands after the last empty line but one: the table."""
        return self.text()[self.text().rfind("\nrun "):]

    def _next(self, what):
        try:
            line = self.arriving.get(timeout=LONGEST_S)
        except queue.Empty:
            raise AssertionError(f"no {what} within {LONGEST_S} s in:\n{self.text()}") from None
        if line is not None:
            self.lines.append(line)
        return line

    def wait_for(self, pattern):
        """The match of the first line from here on that has it."""
        while (line := self._next(repr(pattern))) is not None:
            found = re.search(pattern, line)
            if found:
                return found
        raise AssertionError(f"ended with {self.process.wait()} without {pattern!r}:\n{self.text()}")

    def wait_for_events(self, count):
        """Until so many events more than now have been built, and each builder unit was there: a run begins with the first one."""
        first = None
        while True:
            events = int(self.wait_for(r" (\d+) events ")[1])
            first = events if first is None else first
            if events >= first + count and self._builder_units("is process") <= self._builder_units("joined run"):
                return events

    def _builder_units(self, what):
        return set(re.findall(rf" debug +(.*\bbu\d+) +{what} ", self.text()))

    def url(self):
        return self.wait_for(r"evm +listens at (\S+)")[1]

    def pid(self, node):
        for line in self.lines:
            found = re.search(rf"{node} is process (\d+)$", line)
            if found:
                return int(found[1])
        return int(self.wait_for(rf"{node} is process (\d+)$")[1])

    def kill(self, node, number=signal.SIGKILL):
        os.kill(self.pid(node), number)

    def signal(self, number=signal.SIGINT):
        self.process.send_signal(number)

    def wait_until_stopping(self):
        """After a signal, until the next one is a second request: what comes within 0.1 s is a part of the first one."""
        self.wait_for("stopping: what was read is still built")
        for _ in range(2):  # half a second apart
            self.wait_for("  stopping")

    def finish(self, status=0):
        """Waits for the end, checks the exit status and gives the result object. Without a status: 0 if the run began, else 1."""
        while self._next("end") is not None:
            pass
        if status is None:
            status = 1 if "FAILED: the run never began" in self.text() else 0
        assert self.process.wait(timeout=LONGEST_S) == status, (
            f"exit status {self.process.returncode}, not {status}:\n{self.text()}")
        text = self.result_path.read_text()
        return json.loads(text) if text else None


def take_away(path):
    """The folder is somewhere else, and cannot be made again: as a full disk."""
    for turn in range(100):
        path.rename(f"{path}.away{turn}")
        try:
            return path.symlink_to("nowhere")
        except FileExistsError:  # it was made again before
            pass
    raise AssertionError(f"{path} is made again and again")


def check_balanced(result):
    fragments = result["fragments"]
    assert result["balanced"], f"not balanced: {fragments}"
    assert fragments["read"] == fragments["built"] + fragments["late"] + fragments["dropped"] + fragments["lost"], (
        "the ledger's sum")


def verify(result, cwd=None):
    """Verifies the files of a result; the verification's own result object."""
    files = [str(Path(cwd or ".") / file) for file in result["files"]]
    assert files, "the run has no files"
    done = fanin("verify", "--json", "-", *files)
    assert done.returncode == 0, f"fanin verify: {done.stdout}{done.stderr}"
    found = json.loads(done.stdout)
    for key in ("duplicates", "crc_errors"):
        assert found[key] == 0, key
    return found


def wait_until(condition, what):
    """For what has no descriptor to wait on: asks again until it is so."""
    end = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < end, f"not within {LONGEST_S} s: {what}"
        os.sched_yield()
