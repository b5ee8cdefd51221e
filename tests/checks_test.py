"""What the tool of the checks reads from ctest and ninja: results, reasons for skipping, times."""

import os
import re
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path

import check_commit
import checks
import test_report
from checks import NIGHTLY, ROOT, Session, gtest, pytest

sys.path.append(str(ROOT / "tests/rdma"))
import cost  # noqa: E402
from test_report import Test, TestReport, excuse, not_applicable, slowest_units

JUNIT = """<?xml version="1.0"?>
<testsuite name="x" tests="4" failures="1" disabled="0" skipped="2">
  <testcase name="net.A" time="2.5" status="run"><system-out>fine</system-out></testcase>
  <testcase name="net.B" time="0.5" status="fail"><failure message="Failed"/><system-out>no</system-out></testcase>
  <testcase name="net.C" time="0.1" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
    <system-out>[ RUN ] C
src/fanin/net/x.hpp:12: Skipped
not applicable: both sides are one process

[  SKIPPED ] C (0 ms)</system-out></testcase>
  <testcase name="rails" time="0.1" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>
    <system-out>no network namespace here: it needs unshare
</system-out></testcase>
</testsuite>
"""


def test_results_and_reasons_for_skipping_are_read_from_junit():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "junit.xml"
        path.write_text(JUNIT)
        report = TestReport.read(path)
    assert [t.name for t in report.passed] == ["net.A"], "passed"
    assert [t.name for t in report.failed] == ["net.B"], "failed"
    reasons = ["not applicable: both sides are one process", "no network namespace here: it needs unshare"]
    assert [t.reason for t in report.skipped] == reasons, "reasons"
    assert [not_applicable(t) for t in report.skipped] == [True, False], "not applicable"
    assert report.slowest(1) == [("net.A", 2.5)], "slowest"


def test_a_reason_that_nobody_listed_is_no_excuse():
    assert excuse(Test("x", 0, "skipped", "it is Monday")) == "", "excuse"


def test_an_excuse_holds_only_while_the_thing_is_missing():
    before = os.environ.get("PATH", "")
    try:
        os.environ["PATH"] = "/nonexistent"
        assert excuse(Test("x", 0, "skipped", "valgrind is not installed")) == "valgrind is not installed", "excuse"
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "valgrind").write_text("#!/bin/sh\n")
            (Path(folder) / "valgrind").chmod(0o755)
            os.environ["PATH"] = folder
            assert excuse(Test("x", 0, "skipped", "valgrind is not installed")) == "", "excuse"
    finally:
        os.environ["PATH"] = before


def test_a_stage_beside_others_has_its_own_result_and_time():
    session = Session()
    session.run_beside("beside", ["sh", "-c", "echo said; exit 3"], lambda: session.run("other", lambda: (True, "")))
    assert [(stage.name, stage.ok) for stage in session.stages] == [("other", True), ("beside", False)], session.stages
    assert (session.passed, session.failed) == (1, 1), "counts"


def google_test(folder, cases, status=0):
    """Stands for a test program: writes the report that it is asked for."""
    program = Path(folder) / "test"
    program.write_text(f"""#!{sys.executable}
import sys
path = next(word for word in sys.argv if word.startswith("--gtest_output=xml:")).removeprefix("--gtest_output=xml:")
open(path, "w").write({f"<testsuites><testsuite>{cases}</testsuite></testsuites>"!r})
sys.exit({status})
""")
    program.chmod(0o755)
    return gtest(program, "*x*")()


PASSED = '<testcase name="x" status="run" result="completed" time="1"/>'


def skipped(reason):
    return f'<testcase name="y" status="run" result="skipped"><skipped message="y.cpp:12&#x0A;{reason}"/></testcase>'


def test_a_test_program_that_runs_no_test_or_skips_one_fails_in_spite_of_its_status(tmp_path):
    assert google_test(tmp_path, PASSED) == (True, "")
    assert google_test(tmp_path, "") == (False, "no test was run")
    assert google_test(tmp_path, PASSED + skipped("verbs does not work today")) == (False, "1 skipped")
    assert google_test(tmp_path, PASSED + skipped("not applicable: one process")) == (True, "")
    assert google_test(tmp_path, skipped("not applicable: one process")) == (False, "no test was run")
    assert google_test(tmp_path, PASSED, status=1) == (False, "")


def test_a_script_that_skips_one_of_its_tests_fails(tmp_path):
    script = tmp_path / "some_test.py"
    script.write_text("import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip('it is Monday')\n")
    assert pytest(str(script), "-q", "-p", "no:cacheprovider")() == (False, "1 skipped")
    assert pytest(f"{script}::test_a", "-q", "-p", "no:cacheprovider")() == (True, "")


def test_a_nightly_step_of_tests_fails_if_one_is_skipped():
    class Recorded(Session):
        def build(self, *_):
            return True

        def tests(self, preset, *_, gate_skips=False, **__):
            gated.append(gate_skips)

        def run(self, *_):
            pass

    gated = []
    for step in NIGHTLY.values():
        step(Recorded())
    assert gated == [True] * 4


def test_the_nightly_workflow_has_each_step():
    listed = re.search(r"step: \[(.*)\]", (ROOT / ".github/workflows/nightly.yml").read_text())[1]
    assert listed.split(", ") == list(NIGHTLY)


# Three tests, of which two are skipped: one for a reason that holds on this machine, and `other`.
def report_with(monkeypatch, *other):
    monkeypatch.setattr(test_report, "EXCUSES", [("no moon", lambda: False, "no moon here")])
    tests = [Test("net.A", 1, "passed"), Test("net.B", 1, "skipped", "no moon"),
             Test("net.C", 1, "skipped", "not applicable: one process"), *other]
    monkeypatch.setattr(checks, "run_ctest", lambda *_: TestReport(tests))


def failed_with(**gates):
    session = Session()
    ok = session.tests("release", **gates)
    assert ok == (session.failed == 0), session
    return session.failed


def test_a_skip_that_this_machine_could_run_fails_where_skips_are_judged(monkeypatch):
    report_with(monkeypatch, Test("net.D", 1, "skipped", "it is Monday"))
    assert failed_with() == 0
    assert failed_with(gate_skips=True) == 1
    report_with(monkeypatch)
    assert failed_with(gate_skips=True) == 0


def test_a_test_that_was_asked_for_by_name_may_not_be_skipped_whatever_the_reason(monkeypatch):
    report_with(monkeypatch)
    monkeypatch.setattr(Session, "build", lambda *_: True)
    monkeypatch.setattr(checks, "labels", lambda _: ["net"])
    options = {"preset": "release", "ctest": [], "full": False, "again": False}
    assert checks.test(Namespace(**options, names=[])) == 0
    assert checks.test(Namespace(**options, names=["net"])) == 1


def test_a_plain_run_leaves_out_what_takes_long_unless_it_is_asked_for(monkeypatch):
    chosen = []
    monkeypatch.setattr(Session, "build", lambda *_: True)
    monkeypatch.setattr(Session, "tests", lambda _, preset, options=(), **__: chosen.append((preset, list(options))))
    monkeypatch.setattr(Session, "run", lambda *_: True)
    monkeypatch.setattr(Session, "run_beside", lambda *_: True)
    monkeypatch.setattr(Session, "close", lambda *_: 0)
    monkeypatch.setattr(checks, "labels", lambda _: ["bench"])
    for full, names, ctest in ((False, [], []), (True, [], []), (False, ["bench"], []), (False, [], ["-R", "plot"])):
        checks.test(Namespace(preset="release", ctest=ctest, full=full, again=False, names=names))
    plain, *others = [options for preset, options in chosen if preset == "release"]
    assert plain == ["-E", checks.ONLY_FULL]
    assert len(others) == 3 and all(checks.ONLY_FULL not in options for options in others)


def test_an_unknown_name_is_an_error_of_usage(monkeypatch, capsys):
    monkeypatch.setattr(Session, "build", lambda *_: True)
    monkeypatch.setattr(checks, "labels", lambda _: ["net", "wire"])
    assert checks.test(Namespace(preset="release", ctest=[], full=False, again=False, names=["wire", "moon"])) == 2
    assert "no test is labelled moon; there are: net, wire" in capsys.readouterr().err


def test_nightly_goes_on_after_the_steps_that_passed_and_begins_again_with_another_commit(monkeypatch, tmp_path):
    ran = []
    works = {"first": True, "second": False}

    def step(name):
        def run(session):
            ran.append(name)
            return session.run(name, lambda: (works[name], ""))
        return run

    def night(commit, restart=False):
        ran.clear()
        monkeypatch.setattr(checks.subprocess, "run", lambda *_, **__: Namespace(stdout=commit))
        return checks.nightly(Namespace(restart=restart, only=None)), list(ran)

    monkeypatch.setattr(checks, "ROOT", tmp_path)
    monkeypatch.setattr(checks, "NIGHTLY", {name: step(name) for name in works})
    assert night("a") == (1, ["first", "second"])
    works["second"] = True
    assert night("a") == (0, ["second"])
    assert night("a") == (0, [])
    assert night("a", restart=True) == (0, ["first", "second"])
    assert night("b") == (0, ["first", "second"])


# --- tests that are run once more ----------------------------------------------------------------------------------

PRESETS = """{"version": 6, "configurePresets": [{"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/release"}],
 "testPresets": [{"name": "release", "configurePreset": "release"}]}"""
STEADY = "echo fine"
ONCE = "echo run; mkdir $0.seen && exit 1; exit 0"  # fails the first time
ALWAYS = "echo broken; exit 1"


def run_scripts(folder, monkeypatch, again=True, **scripts):
    """./dev test of a tree whose tests are these scripts: its exit status."""
    build = folder / "build/release"
    build.mkdir(parents=True)
    (folder / "CMakePresets.json").write_text(PRESETS)
    for name, text in scripts.items():
        (build / name).write_text(text)
    (build / "CTestTestfile.cmake").write_text("".join(f'add_test([=[{name}.x/1]=] "sh" "{build / name}")\n' for name in scripts))
    monkeypatch.setattr(checks, "ROOT", folder)
    monkeypatch.setattr(Session, "build", lambda *_: True)
    return checks.test(Namespace(preset="release", ctest=[], full=False, again=again, names=[]))


def outputs(folder, name):
    kept = folder / checks.AGAIN / "release" / f"{name}.x_1"
    return [(kept / f"{which}.txt").read_text().splitlines()[0] for which in ("first", "second")]


def test_a_test_that_fails_once_and_then_passes_is_named_as_unstable(tmp_path, monkeypatch, capfd):
    assert run_scripts(tmp_path, monkeypatch, steady=STEADY, once=ONCE) == 0
    *_, named, last = capfd.readouterr().out.splitlines()
    assert named.startswith("unstable: once.x/1 (release) failed once"), named
    assert last == "2 passed, 0 failed, 0 skipped"
    assert outputs(tmp_path, "once")[0] == "run", "first"
    assert "run" in outputs(tmp_path, "once")[1], "second"
    assert not (tmp_path / checks.AGAIN / "release/steady.x_1").exists()


def test_a_test_that_fails_twice_fails_the_run(tmp_path, monkeypatch, capfd):
    assert run_scripts(tmp_path, monkeypatch, steady=STEADY, always=ALWAYS, once=ONCE) == 1
    *_, named, last = capfd.readouterr().out.splitlines()
    assert named.startswith("unstable: once.x/1 (release)"), named
    assert last == "2 passed, 1 failed, 0 skipped"
    assert outputs(tmp_path, "always") == ["broken", "broken"]


def test_a_plain_run_and_one_in_which_many_tests_fail_run_none_once_more(tmp_path, monkeypatch, capfd):
    assert run_scripts(tmp_path / "plain", monkeypatch, again=False, once=ONCE) == 1
    assert run_scripts(tmp_path / "many", monkeypatch, **{f"once{n}": ONCE for n in range(checks.AGAIN_MOST + 1)}) == 1
    assert "unstable" not in capfd.readouterr().out


def test_a_step_in_the_guest_is_run_once_more_and_named_by_the_host(tmp_path, monkeypatch, capfd):
    results = iter([False, True, False, False])
    guest = Session()
    assert guest.run("peers", lambda: (next(results), ""), again="in the guest")
    assert not guest.run("sockets", lambda: (next(results), ""), again="in the guest")
    guest.close(0)
    (tmp_path / "said").write_text(capfd.readouterr().out)
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    host = Session()
    host.run_beside("RDMA", ["cat", str(tmp_path / "said")], lambda: None)
    assert (guest.failed, host.unstable) == (1, ["peers (in the guest)"])
    assert "once more: peers" in (tmp_path / checks.AGAIN / "RDMA.txt").read_text()


# --- subjects of commits ------------------------------------------------------------------------------------------

def commits_in(folder, *subjects):
    def git(*words, **environment):
        subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, env=os.environ | environment)

    git("init", "--quiet")
    for day, subject in enumerate(subjects, 1):
        git("commit", "--quiet", "--allow-empty", "-m", subject, GIT_COMMITTER_DATE=f"2026-01-{day:02}T12:00:00Z")


def test_subjects_of_new_commits_are_checked(tmp_path, capsys):
    commits_in(tmp_path, "All is well", "net: refuse a page", "Merge branch 'x'", "net: a page is refused")
    assert check_commit.check_new(tmp_path, "2026-01-02T00:00:00Z") == 1
    assert "net: a page is refused: the subject is" in capsys.readouterr().out
    assert check_commit.check_new(tmp_path, "2026-01-05T00:00:00Z") == 0
    assert check_commit.check_new(tmp_path, "2026-01-01T00:00:00Z") == 1


def test_subjects_are_not_checked_where_there_is_no_history(tmp_path):
    commits_in(tmp_path, "All is well")
    inner = tmp_path / "ours"
    inner.mkdir()
    assert check_commit.check_new(inner, "2026-01-01T00:00:00Z") == 77
    assert check_commit.check_new(Path("/"), "2026-01-01T00:00:00Z") == 77


def test_fuzzing_without_a_target_fails():
    done = subprocess.run([sys.executable, ROOT / "tools/fuzz.py", "none", "1"], capture_output=True, text=True)
    assert done.returncode == 1 and "no fuzz targets in build/none/fuzz" in done.stderr, done


def test_the_cost_check_fails_where_valgrind_is_missing_and_where_its_counts_find_nothing(monkeypatch):
    monkeypatch.setattr(cost.shutil, "which", lambda _: None)
    try:
        cost.main()
    except SystemExit as end:
        assert end.code == "valgrind is not installed"
    else:
        raise AssertionError("it passed")
    good = {what: 0.0 for what, *_ in cost.COUNTS} | {what: 0.3 for what in cost.SOME}
    assert cost.judge(good) == []
    assert cost.judge(good | {"posts of sends": 0.0}) == ["no posts of sends found"]
    assert cost.judge(good | {"locks": 0.5}) == ["0.5 locks a message, not 0"]
    assert cost.judge(good | {"system calls": 0.5, "waits": 0.45}) == []


def test_the_cost_check_counts_what_the_modules_of_the_library_call(tmp_path):
    profile = tmp_path / "callgrind"
    profile.write_text("""ob=(1) /x/lib/fanin/fanin_verbs.so
fl=(1) /x/src/fanin/net/verbs/endpoint.cpp
fn=(1) fanin::net::verbs::VerbsEndpoint::poll()
10 5
cob=(2) /lib/libc.so.6
cfn=(2) malloc
calls=3 0
10 100
ob=(3) /x/lib/libfanin_net.so.0.1
fn=(3) fanin::net::RdmaTransport::flush()
cob=(1)
cfn=(4) fanin::net::verbs::VerbsEndpoint::post_sends(std::span<fanin::net::rdma::Send const>)
calls=2 0
11 100
""")
    found = cost.read_profile(profile)
    assert (found["allocations"], found["posts of sends"], found["transport"]) == (3, 2, 5), found


def test_the_longest_compilations_of_this_build_are_found():
    now = time.time()
    rows = [f"0\t9000\t{int((now - 500) * 1e9)}\tsrc/CMakeFiles/old.dir/old.cpp.o\tx",
            f"0\t3000\t{int((now + 1) * 1e9)}\tsrc/fanin/net/CMakeFiles/fanin_net.dir/Unity/unity_0_cxx.cxx.o\tx",
            f"0\t5000\t{int((now + 2) * 1e9)}\tapps/CMakeFiles/app.dir/main.cpp.o\tx",
            f"0\t7000\t{int((now + 2) * 1e9)}\tlib/libfanin.so\tx"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / ".ninja_log").write_text("# ninja log v5\n" + "\n".join(rows) + "\n")
        found = slowest_units(Path(folder), now)
    assert found == [(5.0, "app: main.cpp"), (3.0, "fanin_net")], "compilations"
