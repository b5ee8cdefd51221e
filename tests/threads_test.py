"""Whatever starts a thread stands in a module that ThreadSanitizer runs in ./dev test --full."""

import os
import re
from pathlib import Path

from checks import THREADED

ROOT = Path(os.environ["FANIN_SOURCE_DIR"])

STARTS = re.compile(r"\bstd::(j?thread|async)\b|\bpthread_create\b|\bclone3?\((?!\))")
# A file that starts threads, and the label of the tests that run it.
COVERED_BY = {
    "src/fanin/executive/placement.cpp": "executive",
    "src/fanin/executive/report_pipe_test.cpp": "executive",
    "src/fanin/executive/watched_sink.hpp": "executive",
    "src/fanin/executive/watched_sink_test.cpp": "executive",
    "src/fanin/net/host_resolver.cpp": "net_loop",
    "src/fanin/net/loop_test.cpp": "net_loop",
    "src/fanin/settings/reader_test.cpp": "settings",
    "src/fanin/simulation/sweep.cpp": "sweep",
    "src/fanin/storage/file_sink.cpp": "storage",
    "src/fanin/storage/file_sink.hpp": "storage",
    "src/fanin/storage/run_numbers_test.cpp": "storage",
}


def test_every_file_that_starts_a_thread_is_run_by_the_thread_sanitizer():
    found = {str(path.relative_to(ROOT)) for folder in ("src", "apps") for path in (ROOT / folder).rglob("*.[ch]pp")
             if STARTS.search(path.read_text(encoding="utf-8"))}
    new, gone = sorted(found - COVERED_BY.keys()), sorted(COVERED_BY.keys() - found)
    assert not new, (
        f"{new} start threads: name the tests that run them here, and their label in THREADED of tools/checks.py")
    assert not gone, f"{gone} start no thread any more: take them out of this list"
    assert set(COVERED_BY.values()) <= set(THREADED), "a label of this list is missing in THREADED of tools/checks.py"
