"""What ctest, GoogleTest, pytest and ninja left behind: which tests passed, failed or were skipped and why, and what took
long."""

import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as xml
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent


@dataclass
class Test:
    name: str
    seconds: float
    status: str  # passed, failed or skipped
    reason: str = ""  # why it was skipped
    output: str = ""  # where the report has it, and it was not skipped


class TestReport:
    def __init__(self, tests):
        self.passed = [t for t in tests if t.status == "passed"]
        self.failed = [t for t in tests if t.status == "failed"]
        self.skipped = [t for t in tests if t.status == "skipped"]

    @staticmethod
    def read(path):
        """Of the JUnit file that ctest, GoogleTest or pytest wrote."""
        return TestReport([_test_of(case) for case in xml.parse(path).getroot().iter("testcase")])

    def skipped_without_reason(self):
        """Those that this machine could run."""
        return [t for t in self.skipped if not not_applicable(t) and not excuse(t)]

    def slowest(self, count):
        ordered = sorted(self.passed + self.failed, key=lambda t: -t.seconds)
        return [(t.name, t.seconds) for t in ordered[:count]]


def _test_of(case):
    name, seconds = case.get("name", ""), float(case.get("time") or 0)
    if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
        return Test(name, seconds, "failed", output=_output(case))
    if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
        return Test(name, seconds, "skipped", _reason(case))
    return Test(name, seconds, "passed", output=_output(case))


def _output(case):
    failure = case.find("failure")
    return (case.findtext("system-out") or "") + ((failure.text or "") if failure is not None else "")


def _reason(case):
    """In what a test printed, where ctest wrote the report: GoogleTest prints FILE:LINE: Skipped, then the reason; a script
    prints the reason last. In the message of the element, where GoogleTest (after FILE:LINE) or pytest wrote it."""
    output = case.findtext("system-out") or ""
    found = re.search(r": Skipped\n(.+)", output)
    if found:
        return found.group(1).strip()
    skipped = case.find("skipped")
    lines = output.splitlines() or (skipped.get("message", "") if skipped is not None else "").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "no reason given")


def not_applicable(test):
    """Skipped on every machine: the case means nothing for this parameter."""
    return test.reason.startswith("not applicable: ")


# --- what a machine may lack ----------------------------------------------------------------------------------------
def _runs(*command):
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _has_data():
    places = [SOURCE.parent / "shared" / "data", SOURCE / "data"]
    if os.environ.get("FANIN_DATA"):
        places.insert(0, Path(os.environ["FANIN_DATA"]))
    return any(place.is_dir() for place in places)


def _has_rdma():
    devices = Path("/sys/class/infiniband")
    return devices.is_dir() and any(devices.iterdir())


def _may_limit_memory():
    own = next((line.split(":")[2] for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line), None)
    return own is not None and os.access(f"/sys/fs/cgroup/memory{own}", os.W_OK) or os.access("/sys/fs/cgroup/cgroup.procs", os.W_OK)


def _may_make_networks():
    return shutil.which("ip", path=os.environ["PATH"] + ":/usr/sbin:/sbin") is not None and _runs("unshare", "--map-root-user", "--net", "true")


def _has_token_bucket():
    return _runs("unshare", "--map-root-user", "--net", "sh", "-c", "PATH=$PATH:/usr/sbin:/sbin && "
                 "tc qdisc add dev lo root tbf rate 1mbit burst 3000 limit 9000")


def _has_congestion_controls():
    return len(Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()) > 1


# A reason for skipping: what it says, what must be missing for it to hold, and that in words.
EXCUSES = [
    (r"\./dev data|detector data", _has_data, "no recorded detector data on this machine"),
    (r"RDMA device|no RDMA|ibv_|rdma_", _has_rdma, "no RDMA device on this machine"),
    (r"mount a (tmpfs|file)", lambda: _runs("unshare", "--map-root-user", "--mount", "true"), "no mount namespaces here"),
    (r"network namespace", _may_make_networks, "no network namespaces here"),
    (r"no tbf", _has_token_bucket, "this kernel has no tbf"),
    (r"one congestion control", _has_congestion_controls, "this kernel has one congestion control"),
    (r"control group", _may_limit_memory, "no control group may be made here"),
    (r"become another user|needs root", lambda: os.geteuid() == 0, "not root"),
    (r"root may use all", lambda: os.geteuid() != 0 or _runs("setpriv", "--reuid=65534", "true"), "root, and no other user"),
    (r"valgrind", lambda: shutil.which("valgrind") is not None, "valgrind is not installed"),
    (r"h5py", lambda: _runs("python3", "-c", "import h5py"), "h5py is not installed"),
    (r"selenium", lambda: shutil.which("chromedriver") is not None and _runs("/usr/bin/python3", "-c", "import selenium"),
     "no browser, or no Selenium to drive it"),
    (r"jsonschema", lambda: _runs("/usr/bin/python3", "-c", "import jsonschema"), "jsonschema is not installed"),
    (r"no history of commits", lambda: (SOURCE / ".git").exists() and _runs("git", "-C", SOURCE, "log", "-1"), "no history of commits here"),
    (r"libfabric", lambda: _runs("pkg-config", "--exists", "libfabric"), "libfabric is not installed"),
]


def excuse(test):
    """Why this machine cannot run the test that was skipped, in words; empty if it could."""
    for pattern, available, words in EXCUSES:
        if re.search(pattern, test.reason):
            return "" if available() else words
    return ""


# --- compilations ---------------------------------------------------------------------------------------------------
def slowest_units(build, since, count=5):
    """The longest compilations in ninja's log since a time (seconds since the epoch): (seconds, file)."""
    log = build / ".ninja_log"
    if not log.exists():
        return []
    rows = []
    for line in log.read_text().splitlines():
        fields = line.split("\t")
        if len(fields) != 5 or not fields[3].endswith(".o") or int(fields[2]) < since * 1e9:
            continue
        rows.append(((int(fields[1]) - int(fields[0])) / 1000, _short(fields[3])))
    return sorted(rows, reverse=True)[:count]


def _short(name):
    """src/fanin/net/CMakeFiles/fanin_net.dir/Unity/unity_0_cxx.cxx.o: fanin_net, the whole module."""
    found = re.search(r"CMakeFiles/(\w+)\.dir/(.*)\.o$", name)
    if not found:
        return name
    return found.group(1) if found.group(2).startswith("Unity/") else f"{found.group(1)}: {found.group(2)}"
