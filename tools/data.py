#!/usr/bin/env python3
"""Checks the recorded detector data against tools/data.sha256, and says where to get what is missing: ./dev data.

Usage: data.py [FOLDER...]
It looks in the folders in that order; without any in $FANIN_DATA, ../shared/data and data/. Exits 1 if a file is missing or
differs.
"""

import hashlib
import os
import sys
from pathlib import Path

SUMS = Path(__file__).resolve().parent / "data.sha256"

WHERE_TO_GET = {
    "jpet-hld": """
  # J-PET detector, TRB3 readout, HLD file (JPETTomography/j-pet-framework, Apache-2.0), 3.8 MB
  git clone --bare --filter=blob:none https://github.com/JPETTomography/j-pet-framework data/j-pet-framework.git
  git -C data/j-pet-framework.git show \\
    1493928c4cabdea9c83de244ce6e29d916a5fa38:old/JPetUnpackerTest/xx14099113231.hld >data/jpet-hld/xx14099113231.hld""",
    "sls-modules": """
  # JUNGFRAU, EIGER and MYTHEN3 modules (slsdetectorgroup/aare, MPL-2.0), 20 MB
  git clone --bare --filter=blob:none https://github.com/slsdetectorgroup/aare data/aare.git
  c=ff26178a2a71da15f3ebee1cbfe6169e81f05577
  for f in $(git -C data/aare.git ls-tree -r --name-only $c data/jungfrau data/eiger data/mythen |
             grep -E '/(jungfrau_double|eiger_500k|scan242_d)|/CORRECTED_scan242_master'); do
    git -C data/aare.git show $c:$f >data/sls-modules/${f##*/}
  done"""}


def sums(text):
    """(sha256, name) of each line."""
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def look(listed, folders):
    """The paths of good files, of files that differ, and the names of missing ones."""
    good, differ, missing = [], [], []
    for digest, name in listed:
        found = next((folder / name for folder in folders if (folder / name).exists()), None)
        if found is None:
            missing.append(name)
        elif hashlib.sha256(found.read_bytes()).hexdigest() == digest:
            good.append(found)
        else:
            differ.append(found)
    return good, differ, missing


def advice(missing):
    sets = sorted({name.split("/")[0] for name in missing})
    return "\n".join([
        "", "The recorded files are public; they are looked for in $FANIN_DATA, ../shared/data and data/. To get them:", "",
        f"  mkdir -p {' '.join(f'data/{name}' for name in sets)}", *(WHERE_TO_GET[name] for name in sets), "",
        "  # fragments.csv, an index of the fragments in those files, is made from them:", "  python3 tools/index_data.py data", "",
        "then ./dev data again."])


def main():
    given = sys.argv[1:] or [*filter(None, [os.environ.get("FANIN_DATA")]), "../shared/data", "data"]
    good, differ, missing = look(sums(SUMS.read_text()), [Path(folder) for folder in given])
    for name in missing:
        print(f"missing  {name}")
    for path in differ:
        print(f"DIFFERS  {path}: another sha256")
    print(f"{len(good)} files checked and good, {len(differ)} differ, {len(missing)} missing; looked in: {' '.join(given)}")
    if missing:
        print(advice(missing))
    return 1 if differ or missing else 0


if __name__ == "__main__":
    sys.exit(main())
