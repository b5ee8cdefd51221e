#!/usr/bin/env python3
"""Checks a commit message: the subject is "area: imperative", at most 72 characters, and a body says why.
Usage: check_commit.py FILE | check_commit.py --selftest
"""

import re
import sys
from pathlib import Path

SUBJECT_MAX = 72


def problems(message):
    lines = [line for line in message.split("\n") if not line.startswith("#")]
    subject = lines[0] if lines else ""
    found = []
    if re.match(r"(Merge|Revert|fixup!|squash!) ?", subject):
        return found
    if len(subject) > SUBJECT_MAX:
        found.append(f"the subject has {len(subject)} characters, at most {SUBJECT_MAX}")
    area = r"[a-z][a-z0-9_/-]*"
    if not re.fullmatch(rf"{area}(, {area})*: ([^ A-Z]|[A-Z]{{2}}).*[^. ]", subject):  # RDMA may stay RDMA
        found.append('the subject is "area: what the commit does", small letters, without a full stop')
    if len(lines) > 1 and lines[1].strip():
        found.append("an empty line stands between subject and body")
    if not any(line.strip() for line in lines[2:]):
        found.append("a body says the problem, the reason for this solution, what was tested and what not")
    return found


def selftest():
    good = ["net: refuse a page larger than the pool's\n\nBecause.\n", "source, builder: format\n\nBy clang-format 19.\n",
            "docs: RDMA needs a route\n\nSaid by a user.\n", "Merge branch 'x'\n"]
    bad = ["net refuse a page\n\nWhy.\n", "net: refuse a page\n", "net: refuse a page.\n\nWhy.\n", "net: Refuse\n\nWhy.\n",
           "net: " + "x" * 70 + "\n\nWhy.\n", "net: refuse\nwhy\n", "", "net: refuse\n\n# only a comment\n"]
    for message in good:
        assert not problems(message), (message, problems(message))
    for message in bad:
        assert problems(message), message


def main():
    if sys.argv[1:] == ["--selftest"]:
        return selftest()
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    found = problems(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for problem in found:
        print(f"commit message: {problem}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
