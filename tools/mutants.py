#!/usr/bin/env python3
"""Which checks does no test need? All mutants of some source files are compiled at once, behind a switch; then for each mutant
the tests of its module that come to it run, the quick ones first, and the mutants that none of them noticed are listed.

    tools/mutants.py src/fanin/wire/data_block.cpp src/fanin/storage/file_scan.cpp:100-200
    tools/mutants.py --tests 'Flows|Hostile' src/fanin/builder/control/control_server.cpp

A mutant changes a condition: the boundary of a comparison (< to <=), its sense (== to !=), a part of it that is left out, or
`return false` to `return true`. The working tree stays as it is: a copy of it is built in build/mutants. With a header, all that
includes it is compiled, once. Exit status 1: a mutant survived."""

import argparse
import itertools
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
WORK = SOURCE / "build" / "mutants"
TREE = WORK / "tree"
HEADER = """#pragma once
#pragma GCC diagnostic ignored "-Wtype-limits"
#pragma GCC diagnostic ignored "-Wlogical-op"
#include <cstdio>
#include <cstdlib>
#include <vector>
namespace fanin_mutants {
struct Seen {
  const char* const file = std::getenv("FANIN_MUTANTS_SEEN");
  std::vector<bool> numbers;
  void add(int number) {
    if (static_cast<std::size_t>(number) >= numbers.size()) numbers.resize(static_cast<std::size_t>(number) + 1);
    if (numbers[static_cast<std::size_t>(number)]) return;
    numbers[static_cast<std::size_t>(number)] = true;
    if (std::FILE* const to = std::fopen(file, "a")) {
      std::fprintf(to, "%d\\n", number);
      std::fclose(to);
    }
  }
};
inline thread_local Seen seen;
inline const int active = [] {
  const char* const text = std::getenv("FANIN_MUTANT");
  return text == nullptr ? 0 : std::atoi(text);
}();
constexpr bool is(int number) {
  if consteval { return false; }
  if (seen.file != nullptr) seen.add(number);
  return active == number;
}
} // namespace fanin_mutants
"""
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}


@dataclass
class Mutant:
    number: int
    file: str
    line: int
    change: str


def blanked(text):
    """The same length, without comments, strings and preprocessor lines."""
    pattern = r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#[^\n]*'
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", "_", m[0]), text, flags=re.S | re.M)


def closing(text, at):
    """Where the bracket at `at` is closed."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0:
            return i
    return -1


def split(text, start, end, separators):
    """Parts of text[start:end] between separators outside of brackets, with the separator before each."""
    parts, depth, begin, before, i = [], 0, start, "", start
    while i < end:
        depth += (text[i] in "([{") - (text[i] in ")]}")
        found = next((s for s in separators if depth == 0 and text.startswith(s, i)), None)
        if found:
            parts.append((begin, i, before))
            begin, before, i = i + len(found), found, i + len(found)
        else:
            i += 1
    return parts + [(begin, end, before)]


class File:
    def __init__(self, path, first, last):
        self.path, self.first, self.last = path, first, last
        self.text = (SOURCE / path).read_text()
        self.plain = blanked(self.text)
        self.edits = []  # (from, to, replacement)
        self.mutants = []

    def add(self, numbers, at, change):
        number = next(numbers)
        self.mutants.append(Mutant(number, self.path, self.text.count("\n", 0, at) + 1, " ".join(change.split())))
        return f"fanin_mutants::is({number})"

    def leaf(self, start, end, alone, numbers):
        while start < end and self.text[start].isspace():
            start += 1
        while end > start and self.text[end - 1].isspace():
            end -= 1
        if self.plain[start] == "(" and closing(self.plain, start) == end - 1:
            return self.condition(start + 1, end - 1, numbers)
        if self.plain.startswith("!(", start) and closing(self.plain, start + 1) == end - 1:
            return self.condition(start + 2, end - 1, numbers)
        whole = self.text[start:end]
        if whole == "true":  # without an end: the compiler knows that nothing comes after it
            return
        made = f"static_cast<bool>({whole})"
        found = [p for p in split(self.plain, start, end, [f" {c} " for c in ("<=", ">=", "==", "!=", "<", ">")])]
        if len(found) == 2 and " ? " not in self.plain[start:end]:
            operator = found[1][2].strip()
            left, right = self.text[found[0][0]:found[0][1]], self.text[found[1][0]:found[1][1]]
            other = COMPARISONS[operator]
            switch = self.add(numbers, start, f"{whole}   to   {other}")
            made = f"({switch} ? static_cast<bool>({left} {other} {right}) : {made})"
        for value in {"&&": ["true"], "||": ["false"], "": ["false", "true"]}[alone]:
            switch = self.add(numbers, start, f"{whole}   to   {value}")
            made = f"({switch} ? {value} : {made})"
        self.edits.append((start, end, made))

    def condition(self, start, end, numbers):
        for either in ("||", "&&"):
            parts = split(self.plain, start, end, [either])
            if len(parts) > 1:
                for first, last, _ in parts:
                    if len(split(self.plain, first, last, ["&&", "||"])) > 1:
                        self.condition(first, last, numbers)
                    else:
                        self.leaf(first, last, either, numbers)
                return
        self.leaf(start, end, "", numbers)

    def mutate(self, numbers):
        for found in re.finditer(r"\b(?:if|while) \(|\breturn\b|\bbool \w+ =", self.plain):
            line = self.text.count("\n", 0, found.start()) + 1
            if not self.first <= line <= self.last:
                continue
            begin = found.end()
            if found[0].endswith("("):
                end = closing(self.plain, begin - 1)
                begin, end, _ = split(self.plain, begin, end, [";"])[-1]
                if re.match(r"\s*(?:const )?(?:auto|[\w:<>]+)[\s&*]+(?:const )?(?:\w+|\[.*\])\s*=[^=]", self.plain[begin:end]):
                    continue
                self.condition(begin, end, numbers)
                continue
            end, depth = begin, 0
            while end < len(self.plain) and (depth > 0 or self.plain[end] != ";"):
                depth += (self.plain[end] in "([{") - (self.plain[end] in ")]}")
                end += 1
            inside = self.plain[begin:end]
            if inside.strip() == "false":
                switch = self.add(numbers, begin, "return false   to   true")
                self.edits.append((begin, end, f" ({switch} ? true : false)"))
            elif "{" not in inside and "[" not in inside and self.is_condition(begin, end):
                self.edits.append((begin, begin, " "))
                self.condition(begin, end, numbers)

    def is_condition(self, begin, end):
        operators = ["&&", "||"] + [f" {c} " for c in COMPARISONS]
        outside = len(split(self.plain, begin, end, operators)) > 1
        return outside and len(split(self.plain, begin, end, [" ? ", " << "])) == 1

    def write(self):
        text = self.text
        for start, end, made in sorted(self.edits, reverse=True):
            text = text[:start] + made + text[end:]
        write(TREE / self.path, (f'#include "{WORK}/mutant.hpp"\n' + text).encode())


def write(path, content):
    """Only what has changed, or all would be compiled again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


def copy_tree(files):
    changed = {file.path for file in files}
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=SOURCE, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if name not in changed and (SOURCE / name).is_file():
            write(TREE / name, (SOURCE / name).read_bytes())
            (TREE / name).chmod((SOURCE / name).stat().st_mode)


# The executables with the tests of a module, where it is not one of its own name.
TESTS = {"builder": ["builder", "shaping", "virtual"]}


def build(modules, jobs):
    here = TREE / "build" / "release"
    if not (here / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", "release"], cwd=TREE, check=True, stdout=subprocess.DEVNULL)
    tests = {module: [f"fanin_{name}_test" for name in TESTS.get(module, [module])] for module in modules}
    targets = [*itertools.chain(*tests.values()), "fanin_shared_modules"]  # of the same commit as the tests
    built = subprocess.run(["ninja", "-C", here, f"-j{jobs}", *targets], capture_output=True, text=True)
    if built.returncode != 0:
        sys.exit("\n".join(line for line in built.stdout.splitlines() if "error" in line and len(line) < 1000))
    return {module: [here / "tests" / name for name in names] for module, names in tests.items()}


def run(test, names, environment, limit):
    """How it ended: nothing, if all is well, or the first test that failed."""
    command = [test, "--gtest_fail_fast", "--gtest_brief=1", f"--gtest_filter={':'.join(names)}"]
    try:
        done = subprocess.run(command, env={**os.environ, **environment}, timeout=limit, capture_output=True, text=True,
                              errors="replace", cwd=WORK)
    except subprocess.TimeoutExpired:
        return "hangs"
    failed = re.search(r"\[  FAILED  \] (\S+)", done.stdout)
    return "" if done.returncode == 0 else failed[1] if failed else f"exit status {done.returncode}"


def names_of(test):
    listed = subprocess.run([test, "--gtest_list_tests"], capture_output=True, text=True, check=True)
    suite = ""
    for line in listed.stdout.splitlines():
        name = line.split("#")[0].strip()
        if line.startswith("  "):
            yield suite + name
        elif name.endswith("."):
            suite = name


def reach_of(test, wanted, longest):
    """Of each test that takes no longer: how long, and the mutants that it comes to."""
    seen, reach = WORK / "seen", {}
    for name in names_of(test):
        if not re.search(wanted, name):
            continue
        seen.unlink(missing_ok=True)
        started = time.monotonic()
        if wrong := run(test, [name], {"FANIN_MUTANTS_SEEN": str(seen)}, 60 * longest):
            print(f"{name} is left out: without a mutant it ends with {wrong!r}", flush=True)
            continue
        seconds = time.monotonic() - started
        if seconds <= longest and seen.exists():
            reach[name] = seconds, set(map(int, seen.read_text().split()))
    return reach


def is_noticed(test, mutant, reach):
    """The quick tests first."""
    coming = sorted((seconds, name) for name, (seconds, numbers) in reach.items() if mutant.number in numbers)
    while coming:
        budget = max(4 * coming[0][0], 0.2)
        chunk = []
        while coming and budget > 0:
            seconds, name = coming.pop(0)
            budget -= seconds
            chunk.append((seconds, name))
        limit = 5 + 20 * sum(seconds for seconds, _ in chunk)
        if run(test, [name for _, name in chunk], {"FANIN_MUTANT": str(mutant.number)}, limit):
            return True
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="PATH or PATH:FIRST-LAST, of one module or several")
    parser.add_argument("--tests", default="", help="a regular expression: only these")
    parser.add_argument("--longest", type=float, default=1, help="seconds: tests that take longer are left out")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    numbers, files = iter(range(1, 1_000_000)), []
    for wish in arguments.files:
        path, _, lines = wish.partition(":")
        first, last = (map(int, lines.split("-")) if lines else (1, 1_000_000))
        files.append(File(str(Path(path).resolve().relative_to(SOURCE)), first, last))
        files[-1].mutate(numbers)
    write(WORK / "mutant.hpp", HEADER.encode())
    copy_tree(files)
    for file in files:
        file.write()
    tests = build(dict.fromkeys(Path(file.path).parts[2] for file in files), arguments.jobs)
    total, survived = 0, 0
    for module, executables in tests.items():
        reaches = {test: reach_of(test, arguments.tests, arguments.longest) for test in executables}
        reached = set().union(*(numbers for reach in reaches.values() for _, numbers in reach.values()))
        for file in (file for file in files if Path(file.path).parts[2] == module):
            left = [mutant for mutant in file.mutants
                    if not any(is_noticed(test, mutant, reach) for test, reach in reaches.items())]
            total, survived = total + len(file.mutants), survived + len(left)
            print(f"{file.path}: {len(file.mutants)} mutants, {len(left)} survived", flush=True)
            for mutant in left:
                how = "" if mutant.number in reached else "   (no test comes here)"
                print(f"    {mutant.line}: {mutant.change}{how}", flush=True)
    print(f"{total} mutants, {survived} survived")
    sys.exit(1 if survived else 0)


if __name__ == "__main__":
    main()
