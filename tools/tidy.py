#!/usr/bin/env python3
"""Runs clang-tidy over the sources of a build, and remembers what passed.

Usage: tidy.py --build DIR [-j N] [--modules] [FILE...]
A file is checked again when it, a header of this project that it includes, its compile command or .clang-tidy
changed since it last passed. With --modules (a build with FANIN_UNITY) each module is checked as one file, which reads
what its sources include once; it misses only what one source of a module hides for another, and what is in tests.
Exits 1 if any file has findings.
"""

import argparse
import concurrent.futures
import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# In tests and benchmarks neither the analyzer (GoogleTest's macros cost it half a minute a file) nor speed is asked for.
TEST_CHECKS = "-clang-analyzer-*,-performance-*"
# A module's one file includes its sources, as it should.
MODULE_CHECKS = "-bugprone-suspicious-include"
TEST_MODULE = re.compile(r"fanin_(fuzz_|test_|\w+_(test|microbench)\.dir)")

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]((?:fanin|virtual)/[^">]+|/[^">]+)[">]', re.M)  # absolute: a module's sources


def digest_of(path, seen):
    """Names of path and of all headers of this project below it."""
    if path in seen or not path.exists():
        return seen
    seen[path] = hashlib.sha256(path.read_bytes()).hexdigest()
    for name in INCLUDE.findall(path.read_text(encoding="utf-8", errors="replace")):
        digest_of(ROOT / ("tests" if name.startswith("virtual/") else "src") / name, seen)  # stays as it is where it is absolute
    return seen


def is_of_tests(path):
    return path.stem.endswith(("_test", "_bench")) or bool(TEST_MODULE.match(path.parent.parent.name))


def key_of(entry, config, version):
    seen = digest_of(Path(entry["file"]), {})
    text = json.dumps([version, config, TEST_CHECKS, entry["command"], sorted((str(p), d) for p, d in seen.items())])
    return hashlib.sha256(text.encode()).hexdigest()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, type=Path)
    parser.add_argument("-j", type=int, default=2)
    parser.add_argument("--modules", action="store_true")
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    tidy = shutil.which("clang-tidy-19") or shutil.which("clang-tidy")
    if not tidy:
        sys.exit("clang-tidy not found")
    version = subprocess.run([tidy, "--version"], capture_output=True, text=True).stdout
    config = (ROOT / ".clang-tidy").read_text()
    memory = ROOT / "build" / "tidy"
    memory.mkdir(parents=True, exist_ok=True)

    wanted = {path.resolve() for path in options.files}
    entries = {}
    for entry in json.loads((options.build / "compile_commands.json").read_text()):
        path = Path(entry["file"])
        module = path.parent.name == "Unity"
        if not path.is_relative_to(ROOT) or path.is_relative_to(ROOT / "build") and not (options.modules and module):
            continue
        if options.modules and is_of_tests(path):
            continue
        if not wanted or path in wanted:
            entries[path] = entry
    todo = []
    for path, entry in sorted(entries.items()):
        key = key_of(entry, config, version)
        mark = memory / key
        if wanted or not mark.exists():
            todo.append((path, mark))
    print(f"   {len(todo)} of {len(entries)} files to check", flush=True)

    def run(job):
        path, mark = job
        start = time.monotonic()
        checks = ",".join([TEST_CHECKS] * is_of_tests(path) + [MODULE_CHECKS] * (path.parent.name == "Unity"))
        result = subprocess.run([tidy, f"--checks={checks}", "-p", str(options.build), "--quiet", "--extra-arg=-Wno-error",
                                 "--extra-arg=-Wno-unknown-warning-option", str(path)],
                                capture_output=True, text=True, cwd=ROOT)
        if result.returncode == 0:
            mark.touch()
        return path, result, time.monotonic() - start

    failed, slowest = [], []
    with concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        for path, result, seconds in pool.map(run, todo):
            slowest.append((seconds, path))
            if result.returncode != 0:
                failed.append(path)
                print(result.stdout.strip() or result.stderr.strip(), flush=True)
    for seconds, path in sorted(slowest, reverse=True)[:3]:
        if seconds > 20:
            print(f"   slow: {path.relative_to(ROOT)} {seconds:.0f} s")
    for path in failed:
        print(f"   findings in {path.relative_to(ROOT)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
