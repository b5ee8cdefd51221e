"""tools/mutants.py: which mutants it makes of a source, that each of them does what it says, and which it calls noticed."""

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path

import mutants

SAMPLE = """#include <cstdio>
// A remark: if (size > 1) return false;
static bool taken(int size, int limit, bool open) {
  if (size > limit || !open) return false;
  bool small = size < 4;
  while (true) break;
  const char* const text = "if (size > 2)";
  return small && size != 2 && text != nullptr;
}
int main() {
  for (int size = 0; size < 6; ++size)
    for (int limit = 0; limit < 6; ++limit)
      for (int open = 0; open < 2; ++open) std::putchar(taken(size, limit, open == 1) ? '1' : '0');
}
"""
CHANGES = [(4, "size > limit to >="), (4, "size > limit to false"), (4, "!open to false"),
           (4, "return false to true"), (5, "size < 4 to <="), (5, "size < 4 to false"),
           (5, "size < 4 to true"), (8, "small to true"), (8, "size != 2 to =="), (8, "size != 2 to true"),
           (8, "text != nullptr to =="), (8, "text != nullptr to true")]
EQUIVALENT = {12}  # there is a text

# Three tests, of which the quick one notices mutant 1, the slow one comes to 1 and 2, and the broken one fails by itself.
TEST = """#!/bin/sh
case "$*" in *--gtest_list_tests*) printf 'suite.\\n  quick\\n  slow\\n  broken\\n'; exit 0;; esac
case "$*" in *suite.quick*) seen="1 2"; [ "$FANIN_MUTANT" = 1 ] && wrong=1;; esac
case "$*" in *suite.slow*) seen="1 2 3"; [ "$FANIN_MUTANT" = 2 ] && kill -TERM $$;; esac
case "$*" in *suite.broken*) wrong=1;; esac
[ -z "$FANIN_MUTANTS_SEEN" ] || printf '%s\\n' $seen > "$FANIN_MUTANTS_SEEN"
[ -z "$wrong" ] || { echo '[  FAILED  ] suite.quick'; exit 1; }
"""


@contextlib.contextmanager
def workshop():
    """The tool in a folder of its own."""
    before = mutants.SOURCE, mutants.WORK, mutants.TREE
    with tempfile.TemporaryDirectory() as folder:
        mutants.SOURCE = Path(folder)
        mutants.WORK = Path(folder)
        mutants.TREE = Path(folder) / "tree"
        yield Path(folder)
    mutants.SOURCE, mutants.WORK, mutants.TREE = before


def mutated(folder, first=1, last=1_000_000):
    (folder / "sample.cpp").write_text(SAMPLE)
    file = mutants.File("sample.cpp", first, last)
    file.mutate(iter(range(1, 1000)))
    return file


def test_each_condition_is_changed_in_each_way_and_nothing_else_is():
    with workshop() as folder:
        made = mutated(folder, last=9).mutants
        assert [(mutant.line, mutant.change) for mutant in made] == CHANGES
        assert [mutant.line for mutant in mutated(folder, 5, 6).mutants] == [5, 5, 5], "lines asked for"


def test_a_mutant_does_what_it_says_once_it_is_switched_on():
    with workshop() as folder:
        file = mutated(folder, last=9)
        mutants.write(folder / "mutant.hpp", mutants.HEADER.encode())
        file.write()
        program = folder / "sample"
        for source, made in ((folder / "sample.cpp", folder / "plain"), (mutants.TREE / "sample.cpp", program)):
            subprocess.run(["c++", "-std=c++23", source, "-o", made], check=True)

        def says(executable, **environment):
            return subprocess.run([executable], env={**os.environ, **environment}, capture_output=True, text=True, check=True).stdout

        right = says(folder / "plain")
        assert says(program) == right, "without a mutant"
        changed = {mutant.number for mutant in file.mutants if says(program, FANIN_MUTANT=str(mutant.number)) != right}
        assert changed == {mutant.number for mutant in file.mutants} - EQUIVALENT, "mutants that change something"
        says(program, FANIN_MUTANTS_SEEN=str(folder / "seen"))
        seen = set(map(int, (folder / "seen").read_text().split()))
        assert seen >= changed, "mutants that the program came to"


def test_a_mutant_is_noticed_by_a_test_that_fails_or_dies_of_it_and_by_no_other():
    with workshop() as folder:
        test = folder / "test"
        test.write_text(TEST)
        test.chmod(0o755)
        reach = mutants.reach_of(test, "", 10)
        assert {name: numbers for name, (_, numbers) in reach.items()} == {"suite.quick": {1, 2}, "suite.slow": {1, 2, 3}}
        assert set(mutants.reach_of(test, "qui", 10)) == {"suite.quick"}, "tests asked for"
        noticed = [mutants.is_noticed(test, mutants.Mutant(number, "", 0, ""), reach) for number in (1, 2, 3, 4)]
        assert noticed == [True, True, False, False]

