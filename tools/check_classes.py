#!/usr/bin/env python3
"""Checks that a class has one job: at most 400 lines of function bodies, in one source file and its header. Where there is a reason
for more, the comment before the class says it: "one type" stands there.

Usage: check_classes.py [ROOT] | --list [ROOT] | --selftest
--list prints the largest classes. Prints what is wrong, one a line; exits 1 if anything is.
"""

import re
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from check_modules import code_of, is_test, sources

LINES_MAX = 400
REASON = "one type"

# The first line of a member function's body, at the margin: "Result<> Class::function(", "Class::Class(", "Class::Inner::function(".
MEMBER = re.compile(r"^(?!using\b|return\b|static_assert\b|template\b|[\s#}/]).*?\b([A-Z]\w*)(?:<[^>]*>)?::(?:[A-Z]\w*::)*(?:~?\w+|operator\W+)\(")
# A class up to its first brace, and what of a class is no function although a brace follows.
CLASS = re.compile(r"^[ \t]*(?:template <[^;{]*> )?(?:class|struct) (?:FANIN_\w+ )?([A-Z]\w*)[^;{()]*\{", re.M)
ACCESS = re.compile(r"\b(?:public|private|protected):")
INNER = re.compile(r"\b(?:class|struct|union|enum)\b[^()]*$")


def members(text):
    """(class, lines) of each member function that is defined in a source file formatted by clang-format."""
    lines = code_of(text).splitlines()
    found, at = [], 0
    while at < len(lines):
        match = MEMBER.match(lines[at])
        if not match:
            at += 1
            continue
        end = at
        while end < len(lines) and lines[end] != "}" and not (lines[end].endswith("}") and "{" in "".join(lines[at:end + 1])
                                                              and balanced(lines[at:end + 1])):
            if lines[end].endswith(";") and "{" not in "".join(lines[at:end + 1]):
                break  # a declaration, or a variable
            end += 1
        if end < len(lines) and lines[end].endswith("}"):
            found.append((match[1], end - at + 1))
        at = end + 1
    return found


def end_of(code, at):
    """Of the block that the brace before this place opens: the place after its last brace."""
    depth = 1
    while depth and at < len(code):
        depth += {"{": 1, "}": -1}.get(code[at], 0)
        at += 1
    return at


def bodies(text):
    """(class, lines) of each function that is defined within a class; an inner class belongs to the outer one."""
    code, found, done = code_of(text), [], 0
    for match in CLASS.finditer(code):
        if match.start() < done:
            continue
        done = end_of(code, match.end())
        at = begin = match.end()
        while at < done:
            before, at = code[begin:at], at + 1
            if code[at - 1] == "{" and not INNER.search(before):  # of a function, or of a value
                end = end_of(code, at)
                if "(" in before and before.endswith(" ") and not before.endswith("= "):
                    found.append((match[1], len((ACCESS.sub("", before).lstrip() + code[at:end]).splitlines())))
                    begin = end
                at = end
            elif code[at - 1] in ";{}":
                begin = at
    return found


def balanced(lines):
    code = "".join(lines)
    return code.count("{") == code.count("}")


def sizes(root):
    """{(module, class): [lines, files]}"""
    result = defaultdict(lambda: [0, set()])
    for folder in sorted(path for path in (root / "src" / "fanin").iterdir() if path.is_dir()):
        for path in sources(folder):
            if is_test(path.relative_to(folder)):
                continue
            text = path.read_text(encoding="utf-8")
            for name, lines in members(text) + bodies(text):
                entry = result[folder.name, name]
                entry[0] += lines
                if path.suffix == ".cpp":
                    entry[1].add(path)
    return result


def says_reason(root, module, name):
    for path in sources(root / "src" / "fanin" / module):
        text = path.read_text(encoding="utf-8")
        at = re.search(rf"^((?:[ \t]*//[^\n]*\n)*)(?:class|struct) (?:FANIN_\w+ )?{name}\b[^;{{]*\{{", text, re.M)
        if at and REASON in re.sub(r"\s*\n\s*//+\s*", " ", at[1]):
            return True
    return False


def check(root):
    problems = []
    for (module, name), (lines, files) in sorted(sizes(root).items()):
        if (lines <= LINES_MAX and len(files) <= 1) or says_reason(root, module, name):
            continue
        where = ", ".join(str(path.relative_to(root)) for path in sorted(files))
        problems.append(f"{name}: {lines} lines in {where}, and the comment before it does not say why it is {REASON}")
    return problems


def selftest():
    body = "  a();\n"
    short = "Result<> A::f(int a,\n              int b) {\n" + body * 3 + "}\n\nvoid A::g() {}\n"
    assert members(short) == [("A", 6), ("A", 1)], members(short)
    assert members("A::A(int a) : a_(a) {\n" + body + "}\nvoid A::B::f() {\n}\n") == [("A", 3), ("A", 2)]
    assert members("const int A::b = C::d(1);\nusing A::f;\nint f() {\n  A::g(1);\n}\nauto x = A::f();\n") == []
    within = ("class A {\npublic:\n  A() : a_{1} {}\n  explicit A(int a)\n      : a_{a} {\n" + body + "  }\n  struct B {\n    int f() const { return 1; }\n"
              "    int c{g()};\n  };\n  enum class E { a, b };\n  int h(E e = {});\n};\n")
    assert bodies(within) == [("A", 1), ("A", 4), ("A", 1)], bodies(within)
    assert bodies("template <class T> class A final : B {\n  void f(T a) override {\n  }\n};\nclass C;\nstruct D { int e = f({1}); };\n") == [("A", 2)]
    assert members("template <class T>\nvoid A<T>::f() {\n}\n") == [("A", 2)]
    long = "void A::f() {\n" + body * LINES_MAX + "}\n"
    header = "// What it does. It stays one\n// type, since.\nclass A {\n};\n"
    cases = [({"a.cpp": short}, 0), ({"a.cpp": long}, 1), ({"a.cpp": long, "a.hpp": header}, 0),
             ({"a.cpp": short, "b.cpp": short}, 1), ({"a.cpp": short, "b.cpp": short, "a.hpp": header}, 0),
             ({"a.cpp": short, "b.cpp": short, "a.hpp": header.replace("since", "since\n// B.\nclass B {\n}")}, 1),
             ({"a.cpp": long, "a.hpp": "// one type\nclass A;\nclass A {\n};\n"}, 1), ({"a_test.cpp": long}, 0),
             ({"a.hpp": "class A {\n  void f() {\n" + body * LINES_MAX + "  }\n};\n"}, 1), ({"a.hpp": "class A {\n  void f() {}\n};\n"}, 0),
             ({"a.cpp": "// It stays one type.\nstruct A {\n  void f() {\n" + body * LINES_MAX + "  }\n};\n"}, 0)]
    for number, (files, wanted) in enumerate(cases):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "src" / "fanin" / "net"
            folder.mkdir(parents=True)
            for file, text in files.items():
                (folder / file).write_text(text)
            found = check(Path(name))
            assert len(found) == wanted, (number, found)
    return []


def main():
    arguments = sys.argv[1:]
    if "--selftest" in arguments:
        selftest()
        return 0
    roots = [argument for argument in arguments if not argument.startswith("--")]
    root = Path(roots[0]) if roots else Path(__file__).resolve().parent.parent
    if "--list" in arguments:
        for (module, name), (lines, files) in sorted(sizes(root).items(), key=lambda item: -item[1][0])[:30]:
            print(f"{lines:5} {module}/ {name}: {', '.join(path.name for path in sorted(files))}")
        return 0
    problems = check(root)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems" if problems else "each class has one job")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
