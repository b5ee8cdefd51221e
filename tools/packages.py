#!/usr/bin/env python3
"""Installs those of the Debian packages NAME... that are missing. Without root it prints the command that does so.

Usage: packages.py NAME...

Exits 0 if all are installed (or this is no Debian: then it says once what is needed), 1 if they cannot be installed,
2 if this process is not root. apt's output is in build/packages.log.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

BUILD = Path(__file__).resolve().parent.parent / "build"
LISTS = Path("/var/lib/apt/lists")
STEP = 25  # percent between two lines of progress in a log


def missing(names, listing):
    """The names, sorted, that are not installed; `listing` is dpkg-query's: "PACKAGE STATUS" in each line."""
    installed = {line.split()[0] for line in listing.splitlines() if line.split()[1:] == ["installed"]}
    return sorted(set(names) - installed)


def progress(line):
    """What apt reports on its status descriptor, "pmstatus:PACKAGE:PERCENT:TEXT": (word, percent); None for others."""
    kind, _, percent = (line.split(":") + ["", ""])[:3]
    word = {"dlstatus": "downloading", "pmstatus": "installing"}.get(kind)
    return None if word is None else (word, int(float(percent)))


def show(lines):
    """Shows the progress: one line that changes on a terminal, a line for every 25 % elsewhere."""
    last = -STEP
    for word, percent in filter(None, map(progress, lines)):
        if sys.stdout.isatty():
            print(f"\r\033[K   {word} {percent} %", end="", flush=True)
        elif percent >= last + STEP or percent < last:
            print(f"   {word} {percent} %", flush=True)
            last = percent
    if sys.stdout.isatty():
        print("\r\033[K", end="", flush=True)


def install(names):
    """True if apt-get has installed them."""
    read, write = os.pipe()
    with open(BUILD / "packages.log", "wb") as log:
        process = subprocess.Popen(
            ["apt-get", "install", "-y", "-q", "--no-install-recommends", "-o", f"APT::Status-Fd={write}", "-o",
             "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=120", *names],
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            pass_fds=[write])
    os.close(write)
    with os.fdopen(read, errors="replace") as lines:
        show(lines)
    return process.wait() == 0


def update():
    """True if apt-get has read the lists of packages again."""
    with open(BUILD / "packages.log", "wb") as log:
        return subprocess.run(["apt-get", "update", "-q"], stdout=log, stderr=log).returncode == 0


def fail(what):
    lines = (BUILD / "packages.log").read_text(errors="replace").splitlines()
    print(*lines[-5:], f"./dev: {what} failed (build/packages.log)", sep="\n", file=sys.stderr)
    return 1


def main(names):
    BUILD.mkdir(exist_ok=True)
    if not shutil.which("dpkg-query") or not shutil.which("apt-get"):
        said = BUILD / ".said-packages"
        if not said.exists():
            print(f"== this is no Debian; needed (under Debian's names): {' '.join(names)}", flush=True)
            said.touch()
        return 0
    listing = subprocess.run(["dpkg-query", "-W", "-f=${Package} ${db:Status-Status}\n", *names], capture_output=True,
                             text=True).stdout
    needed = missing(names, listing)
    if not needed:
        return 0
    if os.getuid() != 0:
        print("Packages are missing; install them with:\n\n"
              f"  sudo apt-get install --no-install-recommends {' '.join(needed)}\n", file=sys.stderr)
        return 2
    print(f"== installing from Debian: {' '.join(needed)}", flush=True)
    if any(LISTS.glob("*_Packages*")) and install(needed):
        return 0
    print("== updating the package lists", flush=True)
    if not update():
        return fail("apt-get update")
    return 0 if install(needed) else fail("apt-get install")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
