#!/usr/bin/env python3
"""Formats C++ files by clang-format (.clang-format has the style).

Usage: format.py            what differs from the last commit, new files included
       format.py FILE...    these files
       format.py --all      all C++ files
       format.py --check    changes nothing; exits 1 and names files that --all would change, with the number of places
"""

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "apps", "tests", "fuzz", "examples")
FILES_AT_ONCE = 200


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def is_ours(file):
    return re.fullmatch(rf"({'|'.join(FOLDERS)})/.*\.[ch]pp", file) is not None and (ROOT / file).exists()


def all_files():
    """C++ files, tracked or new."""
    return sorted(filter(is_ours, git("ls-files", "-co", "--exclude-standard")))


def changed_files():
    return sorted(filter(is_ours, {*git("diff", "--name-only", "HEAD", "--"),
                                   *git("ls-files", "--others", "--exclude-standard")}))


def places(messages):
    """How many places clang-format would change in each file, from the messages of its --dry-run."""
    return Counter(re.findall(r"^([^: \n]+\.[ch]pp):\d+:\d+: warning: code should be clang-formatted", messages,
                              re.MULTILINE))


def run(formatter, option, files):
    """What clang-format says on standard error."""
    said = ""
    for i in range(0, len(files), FILES_AT_ONCE):
        done = subprocess.run([formatter, option, *files[i:i + FILES_AT_ONCE]], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        said += done.stderr
        if done.returncode != 0:
            sys.exit(f"./dev: clang-format failed:\n{said}")
    return said


def main(arguments):
    formatter = shutil.which("clang-format-19") or shutil.which("clang-format")
    if formatter is None:
        sys.exit("./dev: there is no clang-format-19")
    if arguments == ["--check"]:
        differ = places(run(formatter, "--dry-run", all_files()))
        for file, count in sorted(differ.items()):
            print(f"{count:7} {file}")
        if differ:
            print("   ./dev format --all corrects that (places, file)")
        return 1 if differ else 0
    if arguments == ["--all"]:
        run(formatter, "-i", all_files())
    elif arguments:
        run(formatter, "-i", [str(Path(file).resolve()) for file in arguments])
    else:
        files = changed_files()
        run(formatter, "-i", files)
        print(*(f"   {file}" for file in files), sep="\n") if files else None
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
