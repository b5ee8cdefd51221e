#!/usr/bin/env python3
"""Sends fragments to a `receive` source of fanin. It needs only Python's standard library.

  send_fragments.py tcp://127.0.0.1:7500 --source 0x300 --events 1000 --rate 100 --size 2000

Copy it, and replace make_payload() by your own data. docs/receive-format.md describes the format.
"""

import argparse
import socket
import struct
import sys
import time
from urllib.parse import urlsplit

PREFACE = struct.Struct("<8sHHI")  # magic, version, reserved, source
HEADER = struct.Struct("<HBBIQII")  # mark, kind, flags, source, event, size, crc32c
MAGIC, VERSION, MARK = b"FANINRCV", 1, 0xF4A6
FRAGMENT, SKIP_TO, END = 0, 1, 2
HAS_CRC = 1


def make_crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = make_crc_table()


def crc32c(data):
    """CRC-32C (Castagnoli). A few MB/s: with a C implementation at hand, use that."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Sender:
    """One connection. send() waits while fanin's buffers are full: nothing is lost."""

    def __init__(self, url, source, with_crc=True):
        address = urlsplit(url)
        if address.scheme != "tcp" or address.port is None:
            raise ValueError(f"{url}: write tcp://host:port")
        self.source = source
        self.with_crc = with_crc
        self.socket = socket.create_connection((address.hostname, address.port))
        self.socket.sendall(PREFACE.pack(MAGIC, VERSION, 0, source))

    def send(self, event, payload):
        """Event numbers rise from call to call; those left out count as absent."""
        flags, crc = (HAS_CRC, crc32c(payload)) if self.with_crc else (0, 0)
        header = HEADER.pack(MARK, FRAGMENT, flags, self.source, event, len(payload), crc)
        self.socket.sendall(header + payload)

    def skip_to(self, event):
        """Nothing below `event` will come: fanin need not wait for it."""
        self.socket.sendall(HEADER.pack(MARK, SKIP_TO, 0, self.source, event, 0, 0))

    def end(self):
        """The data have come to their end, and so will the source."""
        self.socket.sendall(HEADER.pack(MARK, END, 0, self.source, 0, 0, 0))
        self.socket.shutdown(socket.SHUT_WR)
        self.socket.recv(1)  # until fanin has read it all and closed
        self.socket.close()


def make_payload(event, size):
    """The event number over and over."""
    return (struct.pack("<Q", event) * (size // 8 + 1))[:size]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="where the source listens, as tcp://127.0.0.1:7500")
    parser.add_argument("--source", type=lambda text: int(text, 0), default=0, help="its id in the configuration")
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="first event number")
    parser.add_argument("--size", type=int, default=2000, help="bytes of a fragment")
    parser.add_argument("--rate", type=float, default=0, help="events per second; 0: as fast as fanin takes them")
    parser.add_argument("--no-crc", action="store_true", help="leave the checksum to fanin")
    arguments = parser.parse_args()

    try:
        sender = Sender(arguments.url, arguments.source, not arguments.no_crc)
        begin = time.monotonic()
        for i in range(arguments.events):
            if arguments.rate > 0:
                time.sleep(max(0.0, begin + i / arguments.rate - time.monotonic()))
            event = arguments.first + i
            sender.send(event, make_payload(event, arguments.size))
        sender.end()
    except (OSError, ValueError) as error:
        print(f"send_fragments.py: {error}", file=sys.stderr)
        return 1
    seconds = max(time.monotonic() - begin, 1e-9)
    print(f"{arguments.events} fragments in {seconds:.2f} s: {arguments.events / seconds:.0f}/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
