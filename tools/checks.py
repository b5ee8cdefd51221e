#!/usr/bin/env python3
"""The stages of ./dev test, ./dev test --full and ./dev nightly: runs them, measures them, judges what was skipped.

Usage: checks.py test [NAME...] [--full] [--again] [--preset PRESET] [-- CTEST_OPTIONS]
       checks.py nightly [--restart] [--only STEP]

A stage fails alone; the others still run. The last line says "N passed, N failed, N skipped". Exits 1 if anything failed,
with --full also if a test was skipped that this machine could run, with NAME if any was skipped. With --again, which --full
includes, a test that fails is run once more, alone: if it passes then, it is named as unstable, and does not fail the run.
docs/workshop.md has the table of stages.
"""

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from test_report import TestReport, excuse, not_applicable, slowest_units

ROOT = Path(__file__).resolve().parent.parent
CORES = os.cpu_count() or 2
JOBS = CORES + 2  # tests at a time: many of them wait for processes
BOLD, RED, GREEN, DIM, PLAIN = ("\033[1m", "\033[31m", "\033[32m", "\033[2m", "\033[0m") if sys.stdout.isatty() else [""] * 5
# The modules that start threads or share memory between threads (tests/threads_test.py finds one that is missing here).
# Their tests, and event builders of whole processes, are what ThreadSanitizer runs in --full; nightly runs all of them.
THREADED = ["net_loop", "settings", "storage", "executive", "sweep", "run", "shm", "threads"]
SHARED_MEMORY = "^net\\..*([Ss]hm|SHM)"
# What takes long and finds little: tests that draw plots, measure on the testbed or count instructions under valgrind. A plain
# ./dev test leaves them out; --full has them, and who names them.
ONLY_FULL = "^(bench|instructions|testbed)\\.[a-z0-9_]+$"
# What --full runs without sanitizers only, and nightly with them: tests of fanin bench and of its testbed as processes, those of a
# thousand nodes, full links, full disks or long rests, which take minutes there; those of the command's words, whose code has
# unit tests; those of the page in a browser; and those of the tools, which run nothing of fanin. Random runs, hostile bytes and
# deaths stay: they reach the same code.
LONG_WITH_SANITIZERS = [
    "(bench_tools|checks|dev_tools|evidence|mutants|workshop)\\..*",
    "(bench|testbed)\\.[a-z0-9_]+",
    "shaping\\.BarrelShifter\\.fills_.*",
    "(configurations|ofi|page|rails|sim|tools|usage)\\..*",
    "fabric\\.FlitOracle\\..*",
    "simulation\\.Traffic\\..*",
    "message\\.Sockets/LongClose\\..*",
    "(assignment|shaping)\\.every_policy_builds_every_event",
    "(page|runs)\\..*",
    "two_stage\\.(a_group_whose_detector_never_came|a_(frozen_)?readout_unit_of_a_slice)_.*",
    "(examples\\.each_process_of_an_example_may_die|full_disk\\..*|troubleshooting\\..*)",
    "virtual\\..*/Numbers\\.such_a_run_ends_however_long_.*",
    "virtual\\.(All/Shaped|Backpressure|BrokenPaths|End|FarNumbers|LatencyBudget|Readouts/SparseNumbers|Scale|Silence)\\..*",
]
WITHOUT_SANITIZERS = f"^({'|'.join(LONG_WITH_SANITIZERS)})$"
AGAIN = "build/again"  # both outputs of each test that was run once more
AGAIN_MOST = 10  # of one stage: where more tests fail, it is no accident


@dataclass
class Stage:
    name: str
    wall_s: float = 0
    cpu_s: float = 0
    ok: bool = True
    note: str = ""


@dataclass
class Session:
    again: bool = False  # a test that fails is run once more
    stages: list = field(default_factory=list)
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    unstable: list = field(default_factory=list)  # "name (where)"
    slow_tests: list = field(default_factory=list)  # (seconds, preset, name)
    slow_units: list = field(default_factory=list)  # (seconds, preset, file)
    beside_cpu_s: float = 0  # of commands that ran beside stages

    def cpu_seconds(self):
        """Of all processes that ended below this one, those that ran beside stages left out."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime - self.beside_cpu_s

    def run(self, name, action, counts=True, again=""):
        """Runs action(), which returns (ok, note). With counts it is one test of the closing line; with again, which says where
        that is, it is run once more if it fails."""
        print(f"{BOLD}=={PLAIN} {name}", flush=True)
        before, start = self.cpu_seconds(), time.monotonic()
        ok, note = action()
        if not ok and again:
            print(f"   once more: {name}", flush=True)
            ok, note = action()
            self.unstable += [f"{name} ({again})"] * ok
        self.stages.append(Stage(name, time.monotonic() - start, self.cpu_seconds() - before, ok, note))
        if counts:
            self.passed, self.failed = self.passed + ok, self.failed + (not ok)
        return ok

    def run_beside(self, name, words, others):
        """Runs a command that leaves a core idle, while others() runs its stages; then shows what it has said."""
        with tempfile.TemporaryFile("w+", errors="replace") as said:
            stage = Stage(name)
            start = time.monotonic()
            process = subprocess.Popen(words, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT)

            def wait():
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                stage.wall_s, stage.cpu_s = time.monotonic() - start, usage.ru_utime + usage.ru_stime
                self.beside_cpu_s += stage.cpu_s

            waiting = threading.Thread(target=wait)
            waiting.start()
            try:
                others()
            except BaseException:
                process.terminate()
                raise
            finally:
                print(f"{BOLD}=={PLAIN} {name}", flush=True)
                waiting.join()
            said.seek(0)
            output = said.read()
        print(output, end="", flush=True)
        self.unstable += re.findall(r"^unstable: (.*) failed once", output, re.M)
        if "   once more: " in output:
            (ROOT / AGAIN).mkdir(parents=True, exist_ok=True)
            (ROOT / AGAIN / f"{name}.txt").write_text(output)
        stage.ok = process.returncode == 0
        stage.note = "beside others"
        self.stages.append(stage)
        self.passed, self.failed = self.passed + stage.ok, self.failed + (not stage.ok)

    def build(self, preset, *targets):
        def action():
            since = time.time()
            ok = call(["./dev", "build", preset, *targets])
            self.slow_units += [(s, preset, f) for s, f in slowest_units(ROOT / "build" / preset, since)]
            return ok, "" if ok else "does not build"

        ok = self.run(f"build ({preset})", action, counts=False)
        self.failed += not ok
        return ok

    def tests(self, preset, options=(), gate_skips=False, gate_excuses=False, jobs=JOBS, environment=None, name=None):
        def action():
            report = run_ctest(preset, list(options), jobs, environment or {})
            unstable = self.run_again(preset, report, environment or {}) if self.again and report else 0
            if report is None or not (report.passed or report.failed or report.skipped):
                self.failed += 1
                return False, "no test was run"
            self.passed += len(report.passed)
            self.failed += len(report.failed)
            self.slow_tests += [(s, preset, n) for n, s in report.slowest(5)]
            inapplicable = [t for t in report.skipped if not_applicable(t)]
            skipped = [t for t in report.skipped if not not_applicable(t)]
            self.skipped += len(skipped)
            could_run = report.skipped_without_reason()
            say_skipped(could_run)
            for why, count in Counter(excuse(t) for t in skipped if t not in could_run).items():
                print(f"   skipped {count}: {why}")
            to_blame = skipped if gate_excuses else could_run if gate_skips else []
            self.failed += len(to_blame)
            ok = not report.failed and not to_blame
            note = f"{len(report.passed)} passed, {len(report.failed)} failed, {len(skipped)} skipped"
            note += f", {unstable} unstable" if unstable else ""
            return ok, note + (f", {len(inapplicable)} not applicable" if inapplicable else "")

        return self.run(name or f"tests ({preset})", action, counts=False)

    def run_again(self, preset, report, environment):
        """Runs each test that failed once more, alone. Moves those that pass then to the passed ones, and returns how many."""
        before = len(self.unstable)
        if len(report.failed) > AGAIN_MOST:
            print(f"   {len(report.failed)} tests failed: too many to run them once more", flush=True)
            return 0
        for test in list(report.failed):
            print(f"   once more, alone: {test.name}", flush=True)
            second = run_ctest(preset, ["-R", f"^{re.escape(test.name)}$"], 1, environment)
            keep_outputs(preset, test, second)
            if second and second.passed and not second.failed:
                report.failed.remove(test)
                report.passed.append(test)
                self.unstable.append(f"{test.name} ({preset})")
        return len(self.unstable) - before

    def close(self, started):
        print()
        width = max(len(s.name) for s in self.stages)
        print(f"{'stage':<{width}}  result   wall     processor")
        for s in self.stages:
            mark = f"{GREEN}passed{PLAIN}" if s.ok else f"{RED}FAILED{PLAIN}"
            print(f"{s.name:<{width}}  {mark}  {s.wall_s:5.0f} s  {s.cpu_s:5.0f} s  {s.note}")
        total = sum(s.cpu_s for s in self.stages)
        wall = time.monotonic() - started
        print(f"{'in all':<{width}}          {wall:5.0f} s  {total:5.0f} s")
        for title, rows in (("slowest tests", self.slow_tests), ("slowest compilations", self.slow_units)):
            if rows:
                print(f"{DIM}{title}:{PLAIN}")
                for seconds, preset, what in sorted(rows, reverse=True)[:8]:
                    print(f"{DIM}  {seconds:6.1f} s  {preset:<10}  {what}{PLAIN}")
        steal = stolen_share(self.stolen_at_start)
        if steal > 0.05:
            print(f"the hypervisor took {steal:.0%} of the processor time: times say little")
        print()
        for name in self.unstable:
            print(f"{RED}unstable:{PLAIN} {name} failed once and then passed; {AGAIN}/ has both outputs. "
                  "Find the cause, or say in docs/workshop.md why not.")
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        return 0 if self.failed == 0 and self.passed > 0 and all(s.ok for s in self.stages) else 1

    def __post_init__(self):
        self.stolen_at_start = processor_times()


def say_skipped(tests):
    for test in tests:
        print(f"   {RED}skipped, and this machine could run it:{PLAIN} {test.name}: {test.reason}", flush=True)


def processor_times():
    return [int(value) for value in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]


def stolen_share(before):
    spent = [now - then for now, then in zip(processor_times(), before)]
    return spent[7] / max(1, sum(spent))


def call(command, environment=None):
    return subprocess.run(command, cwd=ROOT, env=os.environ | (environment or {})).returncode == 0


def run_ctest(preset, options, jobs, environment):
    path = ROOT / "build" / preset / "junit.xml"
    path.unlink(missing_ok=True)
    # sanitizers name functions and lines with the llvm-symbolizer they find first
    symbolizer = shutil.which("llvm-symbolizer-19")
    search = f"{Path(symbolizer).resolve().parent}:" if symbolizer else ""
    process = subprocess.Popen(["ctest", "--preset", preset, "-j", str(jobs), "--no-label-summary", "--output-junit",
                                str(path), *options],
                               cwd=ROOT, stdout=subprocess.PIPE, text=True, errors="replace",
                               env=os.environ | environment | {"PATH": search + os.environ["PATH"]})
    noise = re.compile(r"^ *Start +\d+:|^Internal ctest|^ *$|^ *\d+/\d+ Test +#.*(Passed|\*\*\*Skipped) ")
    for line in process.stdout:
        if not noise.match(line):
            print(line, end="", flush=True)
    process.wait()
    return TestReport.read(path) if path.exists() else None


def keep_outputs(preset, first, second):
    folder = ROOT / AGAIN / preset / re.sub(r"[^\w.-]", "_", first.name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "first.txt").write_text(first.output)
    (folder / "second.txt").write_text("".join(test.output for test in second.passed + second.failed + second.skipped) if second else "")


def labels(preset):
    listing = subprocess.run(["ctest", "--preset", preset, "--print-labels"], cwd=ROOT, capture_output=True, text=True).stdout
    return [line.strip() for line in listing.splitlines() if line.startswith("  ")]


def label_options(names):
    return ["-L", "^(" + "|".join(re.escape(name) for name in names) + ")$"]


# --- stages of --full and nightly that are one command --------------------------------------------------------------
def command(*words, **environment):
    return lambda: (call(list(words), environment), "")


def dev(*words, **environment):
    return command("./dev", *words, **environment)


def reporting(option, *words, **environment):
    """A test program that is given the option to write a JUnit file. Fails as well if it ran no test, which GoogleTest takes
    for success, or skipped one that this machine could run."""
    def action():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "report.xml"
            ok = call([*words, option + str(path)], environment)
            report = TestReport.read(path) if path.exists() else TestReport([])
        could_run = report.skipped_without_reason()
        say_skipped(could_run)
        ran = len(report.passed) + len(report.failed)
        note = "no test was run" if not ran else f"{len(could_run)} skipped" if could_run else ""
        return ok and not note, note

    return action


def gtest(executable, selection="*", **environment):
    return reporting("--gtest_output=xml:", str(executable), f"--gtest_filter={selection}", "--gtest_brief=1", **environment)


def pytest(*tests, **environment):
    return reporting("--junitxml=", sys.executable, "-m", "pytest", *tests, **environment)


def fault_runs(seeds):
    return gtest("build/release/tests/fanin_virtual_test", "*random*", FANIN_SEEDS=str(seeds))


def two_stages(seeds):
    return gtest("build/release/tests/fanin_virtual_test", "TwoStages.deaths*", FANIN_SEEDS=str(seeds))


def test(options):
    session = Session(again=options.full or options.again)
    if session.again:
        shutil.rmtree(ROOT / AGAIN, ignore_errors=True)
    started = time.monotonic()
    preset = options.preset
    selection = list(options.ctest)
    if session.build(preset):
        if options.names:
            known = labels(preset)
            unknown = [name for name in options.names if name not in known]
            if unknown:
                print(f"./dev test: no test is labelled {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
                return 2
            selection += label_options(options.names)
        elif not options.full and not selection:
            selection += ["-E", ONLY_FULL]
        session.tests(preset, selection, gate_skips=options.full, gate_excuses=bool(options.names))
    if options.full:
        session.run("clang-format", dev("format", "--check"))
        session.run("API documentation", dev("docs"))
        session.run("install test", command("tests/install/run.sh", "build/release"))
        if session.build("asan-ubsan"):
            session.tests("asan-ubsan", selection if options.names else [*selection, "-E", WITHOUT_SANITIZERS],
                          gate_skips=True, environment={"FANIN_SEEDS": "3"})

        def others():
            session.run("fuzzing, 5 s a target", dev("fuzz", "--preset", "asan-ubsan", "5"))
            if session.build("tsan", "fanin_threaded_tests"):
                session.tests("tsan", [*selection, *label_options(THREADED)], gate_skips=True, name="tests (tsan), threads")
                session.tests("tsan", [*selection, "-R", SHARED_MEMORY], gate_skips=True, name="tests (tsan), shared memory")
            session.run("fault runs, 100 seeds", fault_runs(100))
            session.run("two stages, 300 seeds", two_stages(300))
            session.run("clang-tidy", dev("tidy", "--modules"))

        session.run_beside("RDMA in a guest", ["./dev", "test-rdma"], others)
    return session.close(started)


# --- nightly ------------------------------------------------------------------------------------------------------
# What takes long and finds little. In the order of what it costs; each a name and what it does with a session.
NIGHTLY = {
    "conformance": lambda s: s.build("release") and s.run(
        "conformance suite at its limits",
        gtest("build/release/tests/fanin_net_test", "*Conformance*", FANIN_CONFORMANCE="full")),
    "files": lambda s: s.build("dev") and s.tests("dev", gate_skips=True),  # each source and each test compiled by itself
    "seeds": lambda s: s.build("release", "fanin_virtual_test") and s.run("fault runs, 10,000 seeds", fault_runs(10_000)),
    "stages": lambda s: s.build("release", "fanin_virtual_test") and s.run("two stages, 3,000 seeds", two_stages(3000)),
    "kills": lambda s: s.build("release") and s.tests(
        "release", label_options(["storage"]), gate_skips=True, environment={"FANIN_KILL_ROUNDS": "1000"}, jobs=1,
        name="1,000 kills while storing"),
    "runs": lambda s: s.build("release", "fanin_command") and s.run(
        "1,000 kills in whole runs",
        pytest("-s", "tests/kills_test.py", FANIN_KILL_ROUNDS="1000",
               FANIN=str(ROOT / "build/release/bin/fanin"), FANIN_SOURCE_DIR=str(ROOT))),
    "filters": lambda s: s.build("release") and s.run(
        "200 kills of filter units",
        pytest("-s", "tests/filter_test.py::test_filter_units_are_killed_at_random_instants", FANIN_FILTER_KILLS="200",
               FANIN=str(ROOT / "build/release/bin/fanin"), FANIN_SOURCE_DIR=str(ROOT))),
    "control": lambda s: s.build("release", "fanin_command") and s.run(
        "100 kills and 1,000 starts of run control",
        pytest("-s", "tests/serve_test.py", "-k", "again_and_again or given_twice", FANIN_SERVE_KILLS="100", FANIN_STARTS="1000",
               FANIN=str(ROOT / "build/release/bin/fanin"), FANIN_SOURCE_DIR=str(ROOT))),
    "examples": lambda s: s.build("release") and s.run(
        "each process of each example is killed",
        pytest("-s", "tests/examples_test.py", FANIN_EXAMPLES="all",
               FANIN=str(ROOT / "build/release/bin/fanin"), FANIN_SOURCE_DIR=str(ROOT))),
    "evidence": lambda s: all([s.run(f"{what} on the testbed", dev("evidence", what))
                               for what in ("rails", "two-stage", "gigabit", "log-normal", "shaping")]),
    "simulation": lambda s: s.build("release") and s.run("networks of papers, simulated", dev("evidence", "simulation", "--minutes", "240")),
    "headers": lambda s: s.run("headers compile alone", dev("build", "release", "all_verify_interface_header_sets")),
    "install": lambda s: s.build("release") and all([
        s.run("install test", command("tests/install/run.sh", "build/release")),
        s.run("install test, static libraries", command("tests/install/static.sh"))]),
    "rdma-cost": lambda s: s.build("release") and s.run(
        "what a message costs over RDMA", command("tools/rdma_guest.sh", "python3 tests/rdma/cost.py check", LIMIT="2400")),
    "asan": lambda s: s.build("asan-ubsan") and s.tests("asan-ubsan", gate_skips=True),
    "tsan": lambda s: s.build("tsan", "all") and s.tests("tsan", gate_skips=True),
    "tidy": lambda s: s.run("clang-tidy, file by file", dev("tidy")),
    "fuzz": lambda s: s.run("fuzzing, 300 s a target", dev("fuzz", "300")),
}


def nightly(options):
    state_file = ROOT / "build" / "nightly.json"
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    def saved():
        state = json.loads(state_file.read_text()) if state_file.exists() else {}
        return state if state.get("commit") == commit else {"commit": commit, "passed": {}}

    if options.restart:
        state_file.unlink(missing_ok=True)
    state = saved()
    session = Session()
    started = time.monotonic()
    for name, step in NIGHTLY.items():
        if options.only and name not in options.only:
            continue
        if name in state["passed"] and not options.only:
            print(f"   {name}: passed before at {commit}, in {state['passed'][name]:.0f} s")
            continue
        begun = time.monotonic()
        if step(session):
            state = saved()  # another --only may have ended meanwhile
            state["passed"][name] = time.monotonic() - begun
            state_file.parent.mkdir(exist_ok=True)
            state_file.write_text(json.dumps(state, indent=1))
    if not session.stages:
        print(f"everything passed before at {commit}; --restart runs it again")
        return 0
    return session.close(started)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    tests = commands.add_parser("test")
    tests.add_argument("names", nargs="*", help="labels: modules and files of tests/")
    tests.add_argument("--full", action="store_true")
    tests.add_argument("--again", action="store_true", help="a test that fails is run once more, alone")
    tests.add_argument("--preset", default="release")
    night = commands.add_parser("nightly")
    night.add_argument("--restart", action="store_true", help="forget what passed before at this commit")
    night.add_argument("--only", action="append", choices=list(NIGHTLY), help="this step alone; may be repeated")
    words = sys.argv[1:]
    extra = []
    if "--" in words:
        at = words.index("--")
        words, extra = words[:at], words[at + 1:]
    options = parser.parse_args(words)
    options.ctest = extra
    os.chdir(ROOT)
    return test(options) if options.command == "test" else nightly(options)


if __name__ == "__main__":
    sys.exit(main())
