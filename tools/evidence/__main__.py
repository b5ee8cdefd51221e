"""Measures on the testbed, or simulates, what the papers on event building measured; ./dev evidence SET runs it.

Usage: python3 -m evidence FANIN RESULTS SET [--minutes N] [--restart] [--record DOCUMENT]

SET is `shaping` (what shaping does; Moser 2007, tables V and VI, figure 13), `log-normal` (the same with fragments of log-normal
sizes), `rails` (two rails beside one), `gigabit` (baseline, folded and trapezoidal event builders; Pieri 2006), `two-stage` (Pieri
2006, the FED builder), `figures` (single figures of several papers) or `simulation` (networks that the testbed cannot be). RESULTS is
a folder. Each row is written there when it is measured, so a run that is ended loses one row at most, and the next one goes on where it
stopped; --restart begins anew. It stops after N minutes (60). The testbed is its own, in RESULTS. A row over its links that left less
than a quarter of the processors' time idle is measured again over links of half the rate. DOCUMENT gets tables of what there is,
between `<!-- evidence SET -->` and `<!-- end of evidence SET -->`, and its plots, which are in the folder `plots` beside it.

Exit status: 0 all rows are there, 1 some are left or failed, 2 wrong usage.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import machine
from bench import replace_between_marks
from evidence import figures, gigabit, log_normal, rails, shaping, simulation, two_stage

TESTBED = [sys.executable, str(Path(__file__).resolve().parent.parent / "testbed.py")]
SETS = {"shaping": shaping, "log-normal": log_normal, "rails": rails, "gigabit": gigabit, "two-stage": two_stage, "figures": figures,
        "simulation": simulation}
VERSION = 1  # of the rows: rises when a table needs what they did not have
ROW_S = 120  # a row begins only if there is as much time left


class Store:
    """What was measured: a line for each row, the last one of a name counts. Rows of another VERSION are measured again."""

    def __init__(self, folder):
        self.file = folder / "rows.jsonl"

    def read(self):
        found = {}
        if self.file.exists():
            for line in self.file.read_text().splitlines():
                try:
                    one = json.loads(line)
                    if one["version"] == VERSION:
                        found[one["name"]] = one
                except (ValueError, KeyError):
                    pass  # the end of a run that was killed
        return found

    def add(self, row, measured):
        with self.file.open("a") as file:
            file.write(json.dumps({"version": VERSION, "name": row.name(), **asdict(row), **measured}) + "\n")

    def restart(self):
        self.file.unlink(missing_ok=True)


class Testbed:
    """The one that is up, made anew when a row needs another one."""

    __test__ = False  # for pytest

    def __init__(self, folder):
        self.environment = os.environ | {"FANIN_TESTBED": str(folder / "testbed")}
        self.words = None

    def command(self, *words):
        done = subprocess.run([*TESTBED, *words], env=self.environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip() or f"testbed {words[0]} failed")
        return done.stdout

    def need(self, words):
        if words == self.words:
            return
        self.down()
        self.command("up", *words)
        self.words = words

    def down(self):
        self.command("down")
        self.words = None

    def congestion_control(self):
        """Of the connections that were measured last."""
        if self.words is None:
            return machine.congestion_control()
        return json.loads(self.command("status", "--json"))["settings"]["tcp_congestion_control"]


def conditions(fanin):
    """What all rows of a run have in common."""
    described = machine.describe(fanin)
    return {"date": time.strftime("%Y-%m-%d"), "commit": described["commit"], "machine": machine.text(described)}


def conditions_text(found):
    def all_of(key):
        return ", ".join(sorted({one[key] for one in found.values() if key in one}))

    congestion = f"; congestion control {all_of('congestion')}" if all_of("congestion") else ""
    return f"{all_of('date')}, commit {all_of('commit')}: {all_of('machine')}{congestion}."


def document_text(found, rows, which, plots):
    left = sum("error" in found.get(row.name(), {"error": ""}) for row in rows)
    first = [conditions_text(found)] if found else []
    first += [f"{left} rows are not measured."] if left else []
    images = [f"![{Path(file).stem}](plots/{file})" for file in plots]
    return "\n".join([" ".join(first), "", *which.tables(found), *images]).rstrip() + "\n"


def record(document, name, found):
    which = SETS[name]
    plots = which.plots(found, document.parent / "plots") if found else []
    marks = f"<!-- evidence {name} -->\n<!-- end of evidence {name} -->\n"
    text = document.read_text() if document.exists() else f"# {name}\n\n" + marks
    document.write_text(replace_between_marks(text, name, document_text(found, list(which.rows()), which, plots), "evidence"))


def parse():
    parser = argparse.ArgumentParser(prog="./dev evidence", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fanin")
    parser.add_argument("results", type=Path)
    parser.add_argument("what", choices=list(SETS))
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--restart", action="store_true")
    parser.add_argument("--record", type=Path, metavar="DOCUMENT")
    return parser.parse_args()


def main():
    options = parse()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    options.fanin, options.results = str(Path(options.fanin).absolute()), options.results.absolute()
    options.results.mkdir(parents=True, exist_ok=True)
    which, store, testbed = SETS[options.what], Store(options.results), Testbed(options.results)
    if options.restart:
        store.restart()
    until = time.monotonic() + 60 * options.minutes
    found, common = store.read(), conditions(options.fanin)
    left = [row for row in which.rows() if "error" in found.get(row.name(), {"error": ""})]
    failed = 0
    try:
        while left and time.monotonic() + ROW_S <= until:
            row = left.pop(0)
            print(f"   {row.name()}: ", end="", file=sys.stderr, flush=True)
            try:
                measured = common | which.measure(options.fanin, row, testbed)
                if which is not simulation:
                    measured["congestion"] = testbed.congestion_control()
            except (RuntimeError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
                measured = {"error": str(error)}
                failed += 1
            store.add(row, measured)
            print(measured.get("error") or which.headline(measured), file=sys.stderr, flush=True)
    finally:
        testbed.down()
    if options.record:
        record(options.record, options.what, store.read())
    print(f"{failed} rows failed, {len(left)} are left; {store.file} has the others")
    sys.exit(1 if failed or left else 0)


if __name__ == "__main__":
    main()
