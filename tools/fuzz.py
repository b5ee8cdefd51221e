#!/usr/bin/env python3
"""Runs every fuzz target of a build for some seconds, several at a time.

Usage: fuzz.py PRESET [SECONDS]       (60 s each)

Prints a line for each target. New inputs go to build/fuzz/corpus/NAME, failing ones to build/fuzz/found/. Exits 1 if a
target fails, or if there is none.
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "fanin_fuzz_"


def targets(folder):
    """The executables of the build, by name."""
    return sorted(path for path in folder.glob(f"{PREFIX}*") if path.is_file() and os.access(path, os.X_OK))


def last_result(log):
    """libFuzzer's last line of numbers, as "#16384 DONE   cov: 123 ft: 456 ..."; empty if there is none."""
    done = re.findall(r"^#[0-9]+.*DONE.*", log, re.MULTILINE)
    return done[-1] if done else ""


def run(target, seconds, root=ROOT):
    """Runs one target: whether it passed, and the lines to print."""
    name = target.name.removeprefix(PREFIX)
    corpus = root / "build/fuzz/corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    log = root / f"build/fuzz/{name}.log"
    with open(log, "wb") as output:
        status = subprocess.run(
            [target, f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=4096", "-print_final_stats=0",
             "-verbosity=1", f"-artifact_prefix={root}/build/fuzz/found/{name}-", corpus, root / "fuzz/corpus" / name],
            stdout=output, stderr=output,
            env=os.environ | {"LSAN_OPTIONS": f"suppressions={root}/cmake/lsan.supp:print_suppressions=0"}).returncode
    text = log.read_text(errors="replace")
    if status == 0:
        return True, f"   {name:<28} {last_result(text)}"
    return False, "\n".join([*text.splitlines()[-40:], f"   {name:<28} FAILED (build/fuzz/found/)"])


def main(preset, seconds="60"):
    found = targets(ROOT / "build" / preset / "fuzz")
    if not found:
        print(f"   no fuzz targets in build/{preset}/fuzz", file=sys.stderr)
        return 1
    (ROOT / "build/fuzz/found").mkdir(parents=True, exist_ok=True)
    passed = True
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for good, lines in pool.map(lambda target: run(target, int(seconds)), found):
            print(lines, flush=True)
            passed = passed and good
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
