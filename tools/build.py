#!/usr/bin/env python3
"""What ./dev has to know before it builds.

Usage: build.py jobs               prints how many compilers may run at a time
       build.py look-again PRESET  if packages of the tests were missing when PRESET was configured, the next build
                                   configures it again: they may have been installed since
"""

import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMPILER_KB = 1_500_000  # with less memory for each compiler a small machine starts to swap
# GoogleTest, and what the benchmarks are compared with
MISSING = re.compile(r"^(GTest_DIR|FANIN_ZMQ_INCLUDE|MPI_C_COMPILER):[A-Z]*=.*-NOTFOUND", re.MULTILINE)


def jobs(cores, meminfo):
    """How many compilers may run; `meminfo`: the text of /proc/meminfo, empty if the system has none."""
    available = re.search(r"^MemAvailable: *([0-9]+) kB", meminfo, re.MULTILINE)
    return max(1, min(cores, int(available[1]) // COMPILER_KB)) if available else cores


def look_again(build):
    """Forgets the configuration in the folder `build` if it lacks a package of the tests."""
    cache = build / "CMakeCache.txt"
    if cache.exists() and MISSING.search(cache.read_text()):
        (build / "build.ninja").unlink(missing_ok=True)


def main(arguments):
    match arguments:
        case ["jobs"]:
            meminfo = Path("/proc/meminfo")
            print(jobs(len(os.sched_getaffinity(0)), meminfo.read_text() if meminfo.exists() else ""))
        case ["look-again", preset]:
            look_again(ROOT / "build" / preset)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
