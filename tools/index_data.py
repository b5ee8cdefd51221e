#!/usr/bin/env python3
"""Writes fragments.csv beside recorded files: where each fragment lies and its CRC-32 (zlib), one row a fragment.

Usage: index_data.py DATA      with DATA/jpet-hld/*.hld and DATA/sls-modules/*.raw (./dev data)
Written without any code of fanin, so that a test may compare fanin's reading of the same files with it.
"""

import re
import struct
import sys
import zlib
from pathlib import Path


def words(data, offset, count):
    """A HADES header: each carries its own byte order, told by the top byte of its second word, which is 0."""
    little = struct.unpack_from(f"<{count}I", data, offset)
    return ("<", little) if little[1] <= 0xFFFFFF else (">", struct.unpack_from(f">{count}I", data, offset))


def hld_rows(data):
    offset = 0
    while offset < len(data):
        _, event = words(data, offset, 8)
        size, sequence = event[0], event[3]
        at, end = offset + 32, offset + size
        while at + 16 <= end:
            order, sub = words(data, at, 4)
            block, block_end = at + 16, at + sub[0]
            while block < block_end:
                (head,) = struct.unpack_from(order + "I", data, block)
                length = 4 * (1 + (head >> 16))
                if block + length > block_end:
                    raise ValueError(f"offset {block}: a block overruns its subevent")
                crc = zlib.crc32(data[block:block + length])
                yield f"{sequence},{sub[3] >> 8},0x{head & 0xFFFF:04x},{block},{length},{crc:08x}"
                block += length
            at += (sub[0] + 7) & ~7
        offset += (size + 7) & ~7


# set name and bytes of an image, from the master files
SLS_SETS = {"jungfrau_double": 524288, "eiger_500k_16bit": 262144, "eiger_500k_32bit": 524288, "scan242": 5120}


def sls_rows(folder):
    for name, image in SLS_SETS.items():
        record = 112 + image
        files = []
        for path in folder.glob(f"{name}_d*_f*_*.raw"):
            part, index = map(int, re.search(r"_d(\d+)_f(\d+)_\d+\.raw$", path.name).groups())
            files.append((part, index, path))
        for part, _, path in sorted(files):
            data = path.read_bytes()
            for offset in range(0, len(data), record):
                (frame,) = struct.unpack_from("<Q", data, offset)
                crc = zlib.crc32(data[offset:offset + record])
                yield f"{name},{frame},{part},{path.name},{offset},{record},{crc:08x}"


def write(path, header, rows):
    path.write_text("\n".join([header, *rows]) + "\n")
    print(path)


def main():
    data = Path(sys.argv[1]) if len(sys.argv) == 2 else sys.exit(__doc__)
    for path in sorted((data / "jpet-hld").glob("*.hld")):
        write(path.parent / "fragments.csv", "event_seq,trigger,source,offset,length,crc32", hld_rows(path.read_bytes()))
    if (data / "sls-modules").is_dir():
        write(data / "sls-modules" / "fragments.csv", "set,frame,source,file,offset,length,crc32",
              sls_rows(data / "sls-modules"))


if __name__ == "__main__":
    main()
