#!/usr/bin/env python3
"""Counts the production code and the words of the documents, here, at a commit, or at two commits with the difference.

Usage: count_code.py [COMMIT [COMMIT]] [--without PATH]...

Production code: the lines of src/ and apps/ that are neither blank nor only comment, in .hpp and .cpp files. Not counted are tests
(*_test.cpp, *_fuzz.cpp, *_bench.cpp, test_*.cpp), the folders testing/ and conformance/ (the suite that transports are tested with),
and what begins with PATH. Documents: all *.md of the tree but CHANGELOG.md.
"""

import argparse
import io
import re
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path, PurePosixPath

from check_modules import is_test

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = "words of documents"
ALL = "lines of code"
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)


def lines_of_code(text):
    code = TOKEN.sub(lambda token: "" if token[0].startswith("/") else token[0], text)
    return sum(bool(line.strip()) for line in code.splitlines())


def is_production(path):
    return path.parts[0] in ("src", "apps") and path.suffix in (".hpp", ".cpp") and not is_test(path) and "conformance" not in path.parts


def is_document(path):
    return path.suffix == ".md" and path.name != "CHANGELOG.md"


def module(path):
    return path.parts[2] if path.parts[0] == "src" and len(path.parts) > 3 else path.parts[0]


def git(root, *words):
    done = subprocess.run(["git", "-C", root, *words], capture_output=True)
    if done.returncode != 0:
        sys.exit(f"count_code.py: {done.stderr.decode().strip()}")
    return done.stdout


def files(root, commit):
    """(path, text) of each file that counts."""
    listing = git(root, "ls-files", "-co", "--exclude-standard") if commit is None else git(root, "ls-tree", "-r", "--name-only", commit)
    paths = [path for path in map(PurePosixPath, listing.decode().splitlines()) if is_production(path) or is_document(path)]
    if commit is None:
        for path in paths:
            if (root / path).exists():  # it may be deleted and still in the index
                yield path, (root / path).read_text(encoding="utf-8")
        return
    with tarfile.open(fileobj=io.BytesIO(git(root, "archive", commit, "--", *map(str, paths)))) as archive:
        for path in paths:
            yield path, archive.extractfile(str(path)).read().decode()


def count(root, commit=None, without=()):
    """{module: lines, ALL: lines, DOCUMENTS: words}"""
    found = Counter({ALL: 0, DOCUMENTS: 0})
    for path, text in files(root, commit):
        if str(path).startswith(tuple(without)):
            continue
        if is_document(path):
            found[DOCUMENTS] += len(text.split())
        else:
            found[module(path)] += (lines := lines_of_code(text))
            found[ALL] += lines
    return found


def table(counts):
    names = sorted(set().union(*counts) - {ALL, DOCUMENTS}) + [ALL, DOCUMENTS]
    columns = [*counts, {name: counts[1][name] - counts[0][name] for name in names}] if len(counts) == 2 else counts
    return [f"{name:<20}" + "".join(f"{column[name]:>{sign}10,}" for column, sign in zip(columns, ("", "", "+"))) for name in names]


def main():
    parser = argparse.ArgumentParser(prog="./dev count", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commits", nargs="*", metavar="COMMIT")
    parser.add_argument("--without", action="append", default=[], metavar="PATH")
    options = parser.parse_args()
    if len(options.commits) > 2:
        parser.error("at most two commits")
    print(*table([count(ROOT, commit, options.without) for commit in options.commits or [None]]), sep="\n")


if __name__ == "__main__":
    main()
