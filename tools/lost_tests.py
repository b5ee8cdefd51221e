#!/usr/bin/env python3
"""Shows that no test was lost between two builds: each test of the first is in the second, maybe in another module.

Usage: lost_tests.py BUILD_BEFORE BUILD_AFTER     (both with their tests built)
Prints what is missing or has moved, and exits 1 if anything is missing. ./dev test --full runs all tests of the release
build; ./dev nightly runs the conformance suite at its limits, all tests under ThreadSanitizer, and long fuzzing.
"""

import subprocess
import sys


def tests_of(build):
    listing = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True, check=True).stdout
    return {line.split(": ", 1)[1].strip() for line in listing.splitlines() if line.lstrip().startswith("Test") and ": " in line}


def compare(before, after):
    """Which names are lost, and which have moved as (from, to): they differ in the module, the first word. A test that
    stays stands for itself alone, so that one of two equal names in two modules cannot vanish."""
    lost, moved, new = [], [], sorted(after - before)
    for name in sorted(before - after):
        place = next((other for other in new if other.split(".", 1)[-1] == name.split(".", 1)[-1]), None)
        if place is None:
            lost.append(name)
        else:
            new.remove(place)
            moved.append((name, place))
    return lost, moved


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    before, after = tests_of(sys.argv[1]), tests_of(sys.argv[2])
    lost, moved = compare(before, after)
    for name in lost:
        print(f"lost: {name}")
    for name, place in moved:
        print(f"moved: {name} to {place}")
    print(f"{len(before)} tests before, {len(after)} after, {len(lost)} lost, {len(moved)} moved")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
