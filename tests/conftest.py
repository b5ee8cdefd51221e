"""What pytest needs to run the tests of the whole program: where they find each other and the tools, and how ctest learns
that a test was skipped (exit status 77, the reason in the last line)."""

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS / "support"), str(TESTS), str(TESTS.parent / "tools")]
pytest.register_assert_rewrite("fanin_run", "death_test", "replay_test")  # tests of their own, or used by others

SKIPPED = 77
reasons = []


def pytest_runtest_logreport(report):
    if report.skipped:
        reasons.append(report.longrepr[2].removeprefix("Skipped: "))


def pytest_sessionfinish(session):
    nothing_ran = session.testsfailed == 0 and len(reasons) >= max(1, session.testscollected)
    if nothing_ran:
        session.exitstatus = SKIPPED


def pytest_unconfigure():
    if reasons:
        print(reasons[-1])
