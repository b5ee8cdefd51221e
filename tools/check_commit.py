#!/usr/bin/env python3
"""Checks a commit message: the subject is "area: imperative", at most 72 characters, and a body says why. CONTRIBUTING.md has the
rule; .pre-commit-config.yaml calls it for each commit, the test workshop.commits for the subjects of all new ones.

Usage: check_commit.py FILE | --new | --selftest
--new: the commits after SINCE, without merges. Exits 77 where there is no history.
"""

import re
import subprocess
import sys
from pathlib import Path

from check_modules import modules_of

ROOT = Path(__file__).resolve().parent.parent
SINCE = "2026-11-28T20:00:00Z"  # when the subjects began to be checked; a date, because a clone may have little history
SUBJECT_MAX = 72
AREAS = [*modules_of(ROOT), "docs", "workshop", "examples"]
# Where an imperative stands, what is surely none: an article, a question, a noun or a verb that ends in -s.
IMPERATIVE = r"(?!(?:an?|the|no|one|what|who|when|where|which|after|before)\b)(?!\w*[^su\W]s\b)[a-z].*[^. ]"
EXEMPT = re.compile(r"(Merge|Revert|fixup!|squash!) ?")


def subject_problems(subject):
    if EXEMPT.match(subject):
        return []
    found = []
    if len(subject) > SUBJECT_MAX:
        found.append(f"the subject has {len(subject)} characters, at most {SUBJECT_MAX}")
    areas, colon, does = subject.partition(": ")
    unknown = [area for area in areas.split(", ") if area not in AREAS]
    if colon and unknown:
        found.append(f"{', '.join(unknown)} is no area; there are: {', '.join(AREAS)}")
    if not colon or not re.fullmatch(IMPERATIVE, does):
        found.append('the subject is "area: what to do", in the imperative, small letters, without a full stop')
    return found


def problems(message):
    lines = [line for line in message.split("\n") if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if EXEMPT.match(subject):
        return []
    found = subject_problems(subject)
    if len(lines) > 1 and lines[1].strip():
        found.append("an empty line stands between subject and body")
    if not any(line.strip() for line in lines[2:]):
        found.append("a body says the problem, the reason for this solution, what was tested and what not")
    return found


def check_new(root, since):
    log = subprocess.run(["git", "-C", root, "log", "--no-merges", f"--since={since}", "--format=%h %s"], capture_output=True, text=True)
    if log.returncode != 0 or not (root / ".git").exists():  # a folder within a repository of others is not in it
        print("no history of commits here")
        return 77
    commits = [line.split(" ", 1) for line in log.stdout.splitlines()]
    found = [f"{commit} {subject}: {problem}" for commit, subject in commits for problem in subject_problems(subject)]
    print(*found, f"{len(commits)} subjects, {len(found)} problems", sep="\n")
    return 1 if found else 0


def selftest():
    good = ["net: refuse a page larger than the pool's\n\nBecause.\n", "source, builder: format\n\nBy clang-format 19.\n",
            "docs: say that RDMA needs a route\n\nSaid by a user.\n", "Merge branch 'x'\n", "net: pass on what comes\n\nWhy.\n"]
    bad = ["net refuse a page\n\nWhy.\n", "net: refuse a page\n", "net: refuse a page.\n\nWhy.\n", "net: Refuse\n\nWhy.\n",
           "net: " + "x" * 70 + "\n\nWhy.\n", "net: refuse\nwhy\n", "", "net: refuse\n\n# only a comment\n",
           "two stages: refuse\n\nWhy.\n", "net: a page is refused\n\nWhy.\n", "net: refuses a page\n\nWhy.\n"]
    for message in good:
        assert not problems(message), (message, problems(message))
    for message in bad:
        assert problems(message), message


def main():
    if sys.argv[1:] == ["--selftest"]:
        return selftest()
    if sys.argv[1:] == ["--new"]:
        sys.exit(check_new(ROOT, SINCE))
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    found = problems(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for problem in found:
        print(f"commit message: {problem}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
