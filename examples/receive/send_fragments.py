#!/usr/bin/env python3
"""Sends fragments to a `receive` source of fanin. It needs only Python's standard library.

  send_fragments.py tcp://127.0.0.1:7500 --source 0x300 --events 1000 --rate 100 --size 2000

Copy it, and replace make_payload() by your own data. docs/receive-format.md describes the format. It keeps each fragment until the
ledger of the run has it. When the connection is lost it connects again, asks what has arrived, and sends the rest once more: not even
the death of a readout unit loses what it has not announced. With --plain it only sends.
"""

import argparse
import collections
import secrets
import select
import socket
import struct
import sys
import time
from urllib.parse import urlsplit

PREFACE = struct.Struct("<8sHHI")  # magic, version, form, source; behind it the number of a reliable sender
NUMBER = struct.Struct("<Q")
HEADER = struct.Struct("<HBBIQII")  # mark, kind, flags, source, event, size, crc32c
REPLY = struct.Struct("<HBBIQQ")  # mark, kind, status, source, end, fragments that were dropped or late
OWN_CHECKSUM = struct.Struct("<II")  # of a reliable sender, behind each of these: crc32c of it, 0
MAGIC, VERSION, MARK = b"FANINRCV", 1, 0xF4A6
PLAIN, RELIABLE = 0, 3  # form
FRAGMENT, SKIP_TO, END, ANNOUNCED, PAUSE, ANSWER = range(6)  # kind
SEND, NO_SOURCE, ENDED = range(3)  # status of an answer
HAS_CRC = 1
NUMBER_END = 1 << 63  # event numbers are below
FIRST_PAUSE_S = 0.05  # between two attempts to connect; then longer


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


def checked(structure):
    return structure + OWN_CHECKSUM.pack(crc32c(structure), 0)


REPLY_SIZE = len(checked(bytes(REPLY.size)))


class Refused(Exception):
    """fanin has no use for this sender: to try again would not help."""


class Ended(Refused):
    """The source's data have ended."""


class PlainSender:
    """A source's data over one connection. send() waits while fanin's buffers are full. What is under way when the connection is lost is
    lost, and the sender cannot know it. `give_up`: for how many seconds it tries to connect."""

    def __init__(self, url, source, with_crc=True, give_up=60.0):
        address = urlsplit(url)
        if address.scheme != "tcp" or address.port is None:
            raise ValueError(f"{url}: write tcp://host:port")
        self.address = (address.hostname, address.port)
        self.source = source
        self.with_crc = with_crc
        self.give_up = give_up
        self.socket = None
        self._connect()

    def send(self, event, payload):
        """Event numbers rise from call to call; those left out count as absent."""
        flags, crc = (HAS_CRC, crc32c(payload)) if self.with_crc else (0, 0)
        self._send(event, self._header(FRAGMENT, event, flags, len(payload), crc) + payload)

    def skip_to(self, event):
        """Nothing below `event` will come: fanin need not wait for it."""
        self._say(self._header(SKIP_TO, event))

    def pause(self):
        """Nothing follows for now: no event waits long for this source until it sends again."""
        self._say(self._header(PAUSE))

    def end(self):
        """The data have come to their end, and so will the source."""
        self._say(self._header(END))
        self.socket.shutdown(socket.SHUT_WR)
        while self._receive():  # until fanin has read it all and closed; a reset says that it has not
            pass
        self.socket.close()

    def summary(self):
        return ""

    def _header(self, kind, event=0, flags=0, size=0, crc=0):
        return HEADER.pack(MARK, kind, flags, self.source, event, size, crc)

    def _say(self, message):
        self.socket.sendall(message)

    def _send(self, _event, message):
        self._say(message)

    def _receive(self):
        return self.socket.recv(65536)

    def _send_preface(self):
        self.socket.sendall(PREFACE.pack(MAGIC, VERSION, PLAIN, self.source))

    def _notice_dead_host(self):
        """After 25 s without an answer; where the platform lacks these options, after two hours."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):  # seconds, seconds, times
            if hasattr(socket, option):
                self.socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def _connect(self):
        begin, pause = time.monotonic(), FIRST_PAUSE_S
        while True:
            try:
                self.socket = socket.create_connection(self.address)
                self._notice_dead_host()
                return self._send_preface()
            except OSError as error:
                if time.monotonic() - begin + pause > self.give_up:
                    raise
                if pause == FIRST_PAUSE_S:
                    print(f"no connection, trying again: {error}", file=sys.stderr)
            time.sleep(pause)
            pause = min(2 * pause, 2.0)


class Sender(PlainSender):
    """A source's data, over one connection after the other. It keeps each fragment until fanin has acknowledged it; send() waits while
    that is more than `keep` bytes. end() and pause() wait until all is acknowledged: nobody would notice a connection that is lost
    afterwards. It also gives up if for so long no connection makes progress."""

    def __init__(self, url, source, with_crc=True, give_up=60.0, keep=32 << 20):
        self.number = secrets.randbits(64) | 1  # fanin knows this sender again by it
        self.keep = keep
        self.kept = collections.deque()  # (event number, bytes) of fragments
        self.kept_bytes = 0
        self.reconnects = 0
        self.dropped = 0  # or late, as the last reply said
        self.dropped_before = 0  # what fanin had counted before it restarted its count, and what came too late to be sent
        self.read_end = 0  # as the last answer said
        self.connected_at = self.progress_at = time.monotonic()
        self.pause_s = FIRST_PAUSE_S
        super().__init__(url, source, with_crc, give_up)

    def pause(self):
        self._deliver()
        super().pause()

    def end(self):
        self._deliver()
        try:
            while True:
                try:
                    return super().end()
                except OSError:
                    self._reconnect()
        except Ended:  # fanin had heard it: all else is acknowledged
            self.socket.close()

    def summary(self):
        again = f", connected again {self.reconnects} times" if self.reconnects else ""
        return f"{again}, {self.dropped_before + self.dropped} dropped or late"

    def _deliver(self):
        while self.kept:
            self.skip_to(self.kept[-1][0] + 1)  # confirms the last number, over each connection
            connection = self.reconnects
            while self.kept and self.reconnects == connection:
                self._hear(wait=True)

    def _header(self, *fields):
        return checked(super()._header(*fields))

    def _say(self, message):
        while True:
            try:
                return super()._say(message)
            except OSError:
                self._reconnect()

    def _send(self, event, message):
        if event < self.acknowledged or event >= NUMBER_END:
            # fanin drops and counts it: the run went on without it, or the front end counts again, or it is no number
            self._say(message)
            return self._hear(wait=False)
        self.kept.append((event, message))
        self.kept_bytes += len(message)
        try:
            self.socket.sendall(message)
        except OSError:
            self._reconnect()
        self._hear(wait=False)
        while self.kept_bytes > self.keep and len(self.kept) > 1:
            self._hear(wait=True)

    def _hear(self, wait):
        """Takes the acknowledgements that are there; with `wait` the next bytes at least."""
        while wait or select.select([self.socket], [], [], 0)[0]:
            wait = False
            try:
                if self._receive():
                    continue
            except OSError:
                pass
            return self._reconnect()

    def _receive(self):
        part = super()._receive()
        self.heard += part
        while len(self.heard) >= REPLY_SIZE:
            message, self.heard = self.heard[:REPLY_SIZE], self.heard[REPLY_SIZE:]
            _, self.acknowledged = self._take(ANNOUNCED, message)
            self._forget()
        return part

    def _forget(self):
        """What was sent before an acknowledged number is decided too: a higher one, left over from an earlier run, was dropped."""
        for place, (event, _) in enumerate(reversed(self.kept)):
            if event < self.acknowledged:
                for _ in range(len(self.kept) - place):
                    self.kept_bytes -= len(self.kept.popleft()[1])
                return

    def _take(self, wanted, message):
        """Returns status and number of a reply of this kind."""
        structure = message[:REPLY.size]
        if message != checked(structure):
            raise ConnectionError("what fanin sent was damaged on the way")
        mark, kind, status, _, end, dropped = REPLY.unpack(structure)
        if (mark, kind) != (MARK, wanted):
            raise Refused("this is no receive source of fanin")
        if dropped < self.dropped:
            self.dropped_before += self.dropped
        self.dropped = dropped
        return status, end

    def _send_preface(self):
        """And waits until it is this sender's turn. Returns the number behind the last fragment that fanin has read; 0: none."""
        self.heard = b""
        self.acknowledged = 0  # over this connection
        self.socket.sendall(checked(PREFACE.pack(MAGIC, VERSION, RELIABLE, self.source) + NUMBER.pack(self.number)))
        answer = b""
        while len(answer) < REPLY_SIZE:
            part = self.socket.recv(REPLY_SIZE - len(answer))
            if not part:
                raise ConnectionError("the connection was closed instead of an answer: is this host allowed to send, and does this fanin "
                                      f"know version {VERSION}?")
            answer += part
        status, end = self._take(ANSWER, answer)
        if status == NO_SOURCE:
            raise Refused(f"source {self.source:#x}: there is none at this address")
        if status == ENDED:
            raise Ended(f"source {self.source:#x}: its data have ended")
        return end

    def _reconnect(self):
        """Sends what fanin has not read once more. The network may damage the same bytes each time: while fanin reads nothing more, the
        pauses grow, up to `give_up`."""
        while True:
            end = self._connect()
            self.reconnects += 1
            self._wait_without_progress(end)
            try:
                for event, message in list(self.kept):
                    if event >= end:
                        self.socket.sendall(message)
                return
            except OSError:
                pass

    def _wait_without_progress(self, end):
        now = time.monotonic()
        if end != self.read_end or now > self.connected_at + 5.0:
            self.read_end, self.progress_at, self.pause_s = end, now, FIRST_PAUSE_S
        elif now - self.progress_at > self.give_up:
            raise Refused("each connection is lost before fanin has read anything more")
        else:
            time.sleep(self.pause_s)
            self.pause_s = min(2 * self.pause_s, 2.0)
        self.connected_at = time.monotonic()


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
    parser.add_argument("--plain", action="store_true", help="only send: what a lost connection has cost is not known")
    parser.add_argument("--give-up", type=float, default=60, help="seconds for which it tries to connect")
    arguments = parser.parse_args()

    try:
        kind = PlainSender if arguments.plain else Sender
        sender = kind(arguments.url, arguments.source, not arguments.no_crc, arguments.give_up)
        begin = time.monotonic()
        for i in range(arguments.events):
            if arguments.rate > 0:
                time.sleep(max(0.0, begin + i / arguments.rate - time.monotonic()))
            event = arguments.first + i
            sender.send(event, make_payload(event, arguments.size))
        sender.end()
    except (OSError, ValueError, Refused) as error:
        print(f"send_fragments.py: {error}", file=sys.stderr)
        return 1
    seconds = max(time.monotonic() - begin, 1e-9)
    print(f"{arguments.events} fragments in {seconds:.2f} s: {arguments.events / seconds:.0f}/s{sender.summary()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
