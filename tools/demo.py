#!/usr/bin/env python3
"""Runs the event builder of the quick start, verifies what it wrote, and says what to try next: ./dev demo.

Usage: demo.py FANIN [--serve]
Run it in the root of the source tree. It writes into fanin-data/, and its result into build/demo.json. With --serve it becomes run
control of a quiet event builder, until ^C.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

CONFIGURATION = "examples/quickstart.toml"
SERVED = "examples/quiet.toml"
REGISTRY = "fanin-data/runs.sqlite"
SPACE_NEEDED = 3_000_000_000  # bytes; it writes up to 2 GB
BOLD, GREEN, PLAIN = ("\033[1m", "\033[32m", "\033[0m") if sys.stdout.isatty() else ("", "", "")


def human(number, unit):
    """1234567, "Hz": 1.23 MHz."""
    prefixes = ["", "k", "M", "G", "T"]
    while number >= 1000 and len(prefixes) > 1:
        number /= 1000
        prefixes.pop(0)
    return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f} {prefixes[0]}{unit}"


def report(fanin, result):
    files = result["files"]
    size = sum(Path(file).stat().st_blocks * 512 for file in files)
    names = "\n".join(f"  {file}" for file in files)
    return f"""
{BOLD}{GREEN}It works.{PLAIN} {human(result["events"]["built"], " events")} built at {human(result["event_rate_hz"], "Hz")} and \
{human(result["throughput_bytes_per_s"], "B/s")}, every fragment accounted for, read back and checked.
The files ({human(size, "B")}):
{names}

What to try next:
  look inside                {fanin} inspect {files[0]} --event 0
                             python3 -c 'import h5py; f = h5py.File("{files[0]}"); f.visit(print)'
  another transport          {fanin} run {CONFIGURATION} --set network.url=inproc://   (all in one process)
  real detector data         {fanin} run examples/replay-hld.toml        (./dev data says where to get it)
  a source of your own       examples/plugin-source/
  what this host can do      {fanin} bench evb --rus 1 --bus 1 --url tcp --fragment-size 16KiB
  tidy up                    rm -r fanin-data"""


def say(text):
    print(f"{BOLD}=={PLAIN} {text}", flush=True)


def demo(fanin):
    """What went wrong; empty: nothing."""
    free = shutil.disk_usage(".").free
    if free < SPACE_NEEDED:
        return f"the demo writes up to 2 GB into fanin-data/, and only {human(free, 'B')} are free here"
    say(f"fanin run {CONFIGURATION}: 1 event manager, 2 readout units, 2 builder units over TCP, 10 s")
    written = Path("build/demo.json")
    written.parent.mkdir(exist_ok=True)
    status = subprocess.run([fanin, "run", CONFIGURATION, "--json", written]).returncode
    if status != 0:
        return f"the run ended with status {status}"
    result = json.loads(written.read_text())
    if not result["files"]:
        return f"the run names no file in {written}"
    say(f"fanin verify {' '.join(result['files'])}")
    if subprocess.run([fanin, "verify", *result["files"]]).returncode != 0:
        return "the files do not verify"
    print(report(fanin, result))
    return ""


def serve(fanin):
    """Does not return: this process becomes run control."""
    Path(REGISTRY).parent.mkdir(exist_ok=True)
    say(f"fanin serve {SERVED}: an event builder of 1 MB/s that you start and stop in a browser")
    print(f"""   Open the address below; from another computer after ssh -L PORT:localhost:PORT THIS_HOST, with its port
   In a terminal: {fanin} ctl --registry {REGISTRY} start
   ^C stops the run and ends; the files are in fanin-data/
""", flush=True)
    os.execv(fanin, [fanin, "serve", SERVED, "--registry", REGISTRY])


def main():
    if sys.argv[2:] == ["--serve"]:
        serve(sys.argv[1])
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problem = demo(sys.argv[1])
    if problem:
        sys.exit(f"./dev demo: {problem}")


if __name__ == "__main__":
    main()
