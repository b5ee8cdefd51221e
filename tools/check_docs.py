#!/usr/bin/env python3
"""Checks the documents: each link leads to a file and a heading that exist, the protocol page has a section for each message, and the
page of plug-ins a row for each reason why a fragment is dropped.
Source files that the pages of the modules name exist.

Usage: check_docs.py [--selftest] [ROOT]
Prints file: what is wrong, one a line; exits 1 if anything is. See docs/workshop.md.
"""

import re
import sys
import tempfile
from pathlib import Path

PROTOCOL = "docs/modules/builder/protocol.md"
MESSAGES = "src/fanin/wire/control.hpp"
PLUGINS = "docs/plugins.md"
REASONS = "src/fanin/wire/reasons.hpp"


def without_code(text):
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def anchors(text):
    """The names by which GitHub links to the headings of a document."""
    headings = re.findall(r"^#+ +(.*)$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(path, root):
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists():
            yield f"{path.relative_to(root)}: {link} does not exist"
        elif anchor and anchor not in anchors(target.read_text()):
            yield f"{path.relative_to(root)}: {link}: no such heading"


def messages(root):
    """Every enumerator of wire::MessageType has a section of its name."""
    enumerators = re.search(r"enum class MessageType[^{]*\{(.*?)\};", (root / MESSAGES).read_text(), flags=re.S)[1]
    names = re.findall(r"(\w+)(?: *= *\d+)?,", re.sub(r"//[^\n]*", "", enumerators))
    sections = anchors((root / PROTOCOL).read_text())
    return [f"{PROTOCOL}: the message `{name}` has no section" for name in names if name not in sections]


def reasons(root):
    """Every name in drop_reason_names has a row."""
    names = re.search(r"drop_reason_names\s*=\s*\{(.*?)\};", (root / REASONS).read_text(), flags=re.S)[1]
    text = (root / PLUGINS).read_text()
    return [f"{PLUGINS}: the reason `{name}` has no row" for name in re.findall(r'"(\w+)"', names) if f"| `{name}` |" not in text]


def sources(root):
    """Each `folder/file.hpp` or `file.cpp` on the pages of the modules is the end of the path of a source file."""
    known = [f"/{path.relative_to(root)}" for folder in ("apps", "fuzz", "src", "tests") for path in root.glob(f"{folder}/**/*.[ch]pp")]
    return [f"{path.relative_to(root)}: {name} is no source file"
            for path in sorted([*root.glob("docs/modules/**/*.md"), *root.glob("docs/architecture.md")])
            for name in sorted(set(re.findall(r"`([\w/]+\.[ch]pp)`", path.read_text())))
            if not any(file.endswith(f"/{name}") for file in known)]


def problems(root):
    documents = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("examples/**/*.md")]
    return ([problem for path in sorted(documents) for problem in links(path, root)] + messages(root) + reasons(root) + sources(root))


def selftest():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in (PROTOCOL, MESSAGES, PLUGINS, REASONS):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / MESSAGES).write_text("enum class MessageType : int {\n  hello = 1, // who, and where\n  clear,\n};\n")
        (root / PROTOCOL).write_text("### hello\n`[x](nowhere.md)`\n```\n# no heading\n```\n### clear\n[a](#hello) `wire/control.hpp`\n")
        (root / REASONS).write_text('constexpr std::array drop_reason_names = {"late",\n  "oversize"};\n')
        (root / PLUGINS).write_text("| `late` | it came late |\n| `oversize` | it is too large |\n")
        assert problems(root) == [], problems(root)
        (root / "README.md").write_text(f"[a]({PROTOCOL}#hello) [b]({PROTOCOL}#no-heading) [c](gone.md) [d](https://e.f)\n")
        (root / PROTOCOL).write_text("### hello\n`wire/part.hpp`\n")
        (root / PLUGINS).write_text("| `late` | it came late |\n`oversize`\n")
        assert len(problems(root)) == 5, problems(root)


def main():
    arguments = sys.argv[1:]
    if arguments == ["--selftest"]:
        return selftest()
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    found = problems(root)
    for problem in found:
        print(problem)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
