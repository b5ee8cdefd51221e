#!/usr/bin/env python3
"""Two builds of fanin beside each other: one fanin bench of each in turns, and the median of the ratios of the pairs with
its 95 % interval. ./dev bench --against COMMIT runs it.

It goes on until the interval is as narrow as asked (--width), or for --pairs pairs. Pairs in which other machines took more
than 5 % of the processors' time are dropped by fanin bench itself and measured again. Exit status 0: the interval includes 1
or lies above; 1: the second build is slower; 3: the interval stayed too wide to say.
"""

import argparse
import json
import math
import subprocess
import sys


def interval_of_median(values, confidence=0.95):
    """The order statistics that enclose the median with at least this probability; None where there are too few values."""
    ordered, count = sorted(values), len(values)
    left, tail = 0, 0.0
    while left < count:
        tail += math.comb(count, left) / 2**count
        if 2 * tail > 1 - confidence:
            break
        left += 1
    return None if left == 0 else (ordered[left - 1], ordered[count - left])


def median(values):
    ordered, count = sorted(values), len(values)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2


def verdict(ratios, width):
    """None while the interval is too wide, then whether the second build is at least as fast."""
    found = interval_of_median(ratios)
    if found is None or found[1] - found[0] > width:
        return None
    return found[1] >= 1


def rate(program, options):
    """Messages, or fragments, a second of the program's own row."""
    done = subprocess.run([program, "bench", *options, "--runs", "1", "--quiet", "--json", "-"], stdout=subprocess.PIPE,
                          check=True)
    rows = {row["what"]: row for row in json.loads(done.stdout)["results"]}
    return rows["evb" if options[0] == "evb" else "fanin"]["messages_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--pairs", type=int, default=60, help="at most so many (60)")
    parser.add_argument("--width", type=float, default=5, help="of the interval, in percent (5)")
    parser.add_argument("bench", nargs=argparse.REMAINDER, help="-- evb --fragment-size 16KiB ...")
    asked = parser.parse_args()
    options = [option for option in asked.bench if option != "--"]
    options += ["--no-baselines"] if options[0] == "evb" else ["--peers", "none"]
    ratios = []
    while len(ratios) < asked.pairs and verdict(ratios, asked.width / 100) is None:
        programs = [asked.before, asked.after]
        turned = len(ratios) % 2 == 1  # who comes first takes turns too
        rates = [rate(program, options) for program in (programs[::-1] if turned else programs)]
        before, after = rates[::-1] if turned else rates
        ratios.append(after / before)
        print(f"   pair {len(ratios)}: {before:.4g}/s, {after:.4g}/s, ratio {ratios[-1]:.3f}", file=sys.stderr, flush=True)
    found = interval_of_median(ratios)
    if found is None:
        sys.exit("six pairs are the fewest that give an interval")
    print(f"{' '.join(options)}: median ratio {median(ratios):.3f}, 95 % interval {found[0]:.3f} to {found[1]:.3f}, {len(ratios)} pairs")
    outcome = verdict(ratios, asked.width / 100)
    return 3 if outcome is None else 0 if outcome else 1


if __name__ == "__main__":
    sys.exit(main())
