"""What the tool of the checks reads from ctest and ninja: results, reasons for skipping, times."""

import os
import tempfile
import time
from pathlib import Path

from checks import Session, gtest
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


def test_a_selection_that_matches_no_test_fails():
    with tempfile.TemporaryDirectory() as folder:
        test = Path(folder) / "test"
        for listed, expected in (("", (False, "no test matches *x*")), ("suite.\\n  x\\n", (True, ""))):
            test.write_text(f"#!/bin/sh\ncase $2 in --gtest_list_tests) printf '{listed}';; esac\n")
            test.chmod(0o755)
            assert gtest(test, "*x*")() == expected


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
