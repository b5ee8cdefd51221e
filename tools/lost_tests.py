#!/usr/bin/env python3
"""Shows that no test was lost between two builds: each test of the first is in the second, maybe in another module.

Usage: lost_tests.py BUILD_BEFORE BUILD_AFTER     (both with their tests built)
Prints what is missing and exits 1 if anything is. ./dev test --full runs all tests of the release build; ./dev nightly
runs the conformance suite at its limits, all tests under ThreadSanitizer, and long fuzzing.
"""

import subprocess
import sys


def tests_of(build):
    """Without the module, which is the first word of a name: a test may move."""
    listing = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True, check=True).stdout
    names = [line.split(": ", 1)[1].strip() for line in listing.splitlines() if line.lstrip().startswith("Test") and ": " in line]
    return {name.split(".", 1)[-1] for name in names}


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    before, after = tests_of(sys.argv[1]), tests_of(sys.argv[2])
    lost = sorted(before - after)
    for name in lost:
        print(f"lost: {name}")
    print(f"{len(before)} tests before, {len(after)} after, {len(lost)} lost, {len(after - before)} new")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
