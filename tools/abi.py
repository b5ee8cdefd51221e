#!/usr/bin/env python3
"""The names that libfanin_net and libfanin export, and the committed lists of them (docs/abi.md).

Usage: abi.py BUILD [--update]
Prints what was added (+) and removed (-) against cmake/abi/*.txt and exits 1; with --update writes the lists. The lists hold
for the preset release.
"""

import re
import subprocess
import sys
from pathlib import Path

LISTS = Path(__file__).resolve().parent.parent / "cmake" / "abi"
LIBRARIES = ("libfanin_net", "libfanin")


def names_of(symbols):
    """The names in the output of nm -D --defined-only --demangle, sorted, each once. A constructor has several symbols. What
    the compiler makes of templates is left out: it depends on what it inlines."""
    found = (re.fullmatch(r"[0-9a-f]+ ([A-Za-z]) (.*)", line) for line in symbols.splitlines())
    return sorted({match[2] for match in found if match and match[1] != "W"})


def exported(library):
    return names_of(subprocess.run(["nm", "-D", "--defined-only", "--demangle", library], check=True, capture_output=True,
                                   text=True).stdout)


def changes(before, after):
    return [f"- {name}" for name in sorted(set(before) - set(after))] + [f"+ {name}" for name in sorted(set(after) - set(before))]


def compare(build, update=False):
    """What differs from the lists, a line each."""
    lines = []
    for library in LIBRARIES:
        names, path = exported(build / "lib" / f"{library}.so"), LISTS / f"{library}.txt"
        if update:
            path.write_text("\n".join(names) + "\n")
        lines += [f"{library}: {change}" for change in changes(path.read_text().splitlines(), names)]
    return lines


def main():
    arguments = [word for word in sys.argv[1:] if word != "--update"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    lines = compare(Path(arguments[0]), "--update" in sys.argv)
    print("\n".join(lines) if lines else "the exported names are those of the lists")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
