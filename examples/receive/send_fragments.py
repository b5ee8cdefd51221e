#!/usr/bin/env python3
"""Sends fragments to a `receive` source of fanin. It needs only Python's standard library.

  send_fragments.py tcp://127.0.0.1:7500 --source 0x300 --events 1000 --rate 100 --size 2000

Copy it, and replace make_payload() by your own data. docs/receive-format.md describes the format. When the connection is lost
it connects again, asks what has arrived, and sends the rest once more. With --acknowledged it keeps each fragment until the ledger
of the run has it: then not even the death of a readout unit loses what it has not announced.
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

PREFACE = struct.Struct("<8sHHIQ")  # magic, version, reserved, source, number of this sender
ANSWER = struct.Struct("<8sHBBIQ")  # magic, version, status, whether there is a last event, source, last event
HEADER = struct.Struct("<HBBIQII")  # mark, kind, flags, source, event, size, crc32c
OWN_CHECKSUM = struct.Struct("<II")  # from version 4 on, behind each of these: crc32c of it, 0
MAGIC, ANSWER_MAGIC, MARK = b"FANINRCV", b"FANINANS", 0xF4A6
SEND, NO_SOURCE, ENDED = 0, 1, 2  # status of an answer
FRAGMENT, SKIP_TO, END, ANNOUNCED, PAUSE = 0, 1, 2, 3, 4
HAS_CRC = 1
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


class Refused(OSError):
    """fanin has no use for this sender: to try again would not help."""


class Ended(Refused):
    """The source's data have ended."""


class Sender:
    """A source's data, over one connection after the other. send() waits while fanin's buffers are full: nothing is lost.

    What was sent last is kept, up to `keep` bytes, for a connection that is lost: it must be more than what may be under way,
    that is the socket buffers of both hosts. `give_up` is how many seconds it tries to connect, in a row, or connects in vain."""

    version = 2

    def __init__(self, url, source, with_crc=True, give_up=60.0, keep=32 << 20):
        address = urlsplit(url)
        if address.scheme != "tcp" or address.port is None:
            raise ValueError(f"{url}: write tcp://host:port")
        self.address = (address.hostname, address.port)
        self.source = source
        self.with_crc = with_crc
        self.give_up = give_up
        self.keep = keep
        self.message_size = len(self._checked(bytes(HEADER.size)))  # of what fanin sends: answers, acknowledgements
        self.number = secrets.randbits(64) | 1  # fanin knows this sender again by it
        self.kept = collections.deque()  # (event number, bytes) of the last messages
        self.kept_bytes = 0
        self.reconnects = 0
        self.last_read = None  # as the last answer said
        self.connected_at = self.progress_at = time.monotonic()
        self.vain_pause = FIRST_PAUSE_S
        self.socket = None
        self._connect()

    def send(self, event, payload):
        """Event numbers rise from call to call; those left out count as absent."""
        flags, crc = (HAS_CRC, crc32c(payload)) if self.with_crc else (0, 0)
        self._send(event, self._header(FRAGMENT, event, flags, len(payload), crc) + payload)

    def skip_to(self, event):
        """Nothing below `event` will come: fanin need not wait for it."""
        self._send(event, self._header(SKIP_TO, event))

    def pause(self):
        """Nothing follows for now: no event waits long for this source until it sends again."""
        while True:
            try:
                return self.socket.sendall(self._header(PAUSE))
            except OSError:
                self._reconnect()

    def end(self):
        """The data have come to their end, and so will the source."""
        while True:
            try:
                self.socket.sendall(self._header(END))
                self.socket.shutdown(socket.SHUT_WR)
                while self.socket.recv(65536):  # until fanin has read it all and closed; a reset says that it has not
                    pass
                return self.socket.close()
            except OSError:
                self._reconnect()

    def _header(self, kind, event=0, flags=0, size=0, crc=0):
        return self._checked(HEADER.pack(MARK, kind, flags, self.source, event, size, crc))

    def _checked(self, structure):
        return structure + OWN_CHECKSUM.pack(crc32c(structure), 0) if self.version >= 4 else structure

    def _structure(self, message):
        """What fanin sent, without its checksum. To connect again helps if that differs."""
        structure = message[:HEADER.size]
        if message != self._checked(structure):
            raise ConnectionError("an answer or acknowledgement was damaged on the way")
        return structure

    def _send(self, event, message):
        self.kept.append((event, message))
        self.kept_bytes += len(message)
        while self.kept_bytes > self.keep and len(self.kept) > 1:
            self.kept_bytes -= len(self.kept.popleft()[1])
        try:
            self.socket.sendall(message)
        except OSError:
            self._reconnect()

    def _connect(self):
        """Until it is this sender's turn. Returns the last event number that fanin has read; None: none."""
        begin, pause = time.monotonic(), FIRST_PAUSE_S
        while True:
            try:
                self.socket = socket.create_connection(self.address)
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a host that is gone is noticed
                self.socket.sendall(self._checked(PREFACE.pack(MAGIC, self.version, 0, self.source, self.number)))
                return self._answer()
            except Refused:
                raise
            except OSError as error:
                if time.monotonic() - begin + pause > self.give_up:
                    raise
                if pause == FIRST_PAUSE_S:
                    print(f"no connection, trying again: {error}", file=sys.stderr)
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def _answer(self):
        answer = b""
        while len(answer) < self.message_size:
            part = self.socket.recv(self.message_size - len(answer))
            if not part:
                raise ConnectionError("the connection was closed instead of an answer: is this host allowed to send, and does this fanin "
                                      f"know version {self.version}?")
            answer += part
        magic, _, status, has_last, _, last = ANSWER.unpack(self._structure(answer))
        if magic != ANSWER_MAGIC or status not in (SEND, NO_SOURCE, ENDED):
            raise Refused("this is no receive source of fanin")
        if status == NO_SOURCE:
            raise Refused(f"source {self.source:#x}: there is none at this address")
        if status == ENDED:
            raise Ended(f"source {self.source:#x}: its data have ended")
        return last if has_last else None

    def _reconnect(self):
        """Sends what fanin has not read once more. If it has read nothing, it is another run: only the last message.

        The network may damage the same bytes each time: while fanin reads nothing more, the pauses grow, up to `give_up`."""
        while True:
            last = self._connect()
            self.reconnects += 1
            self._wait_if_in_vain(last)
            try:
                for message in self._unread(last):
                    self.socket.sendall(message)
                return
            except OSError:
                pass

    def _wait_if_in_vain(self, last):
        now = time.monotonic()
        if last != self.last_read or now > self.connected_at + 5.0:
            self.last_read, self.progress_at, self.vain_pause = last, now, FIRST_PAUSE_S
        elif now - self.progress_at > self.give_up:
            raise ConnectionError("each connection is lost before fanin has read anything more")
        else:
            time.sleep(self.vain_pause)
            self.vain_pause = min(2 * self.vain_pause, 2.0)
        self.connected_at = time.monotonic()

    def _unread(self, last):
        """The messages after the one that was read last. The number does not say which one that was if skip_to() said it, too."""
        numbers = [event for event, _ in self.kept]
        if last is None:
            first = max(len(numbers) - 1, 0)
        else:
            first = len(numbers) - numbers[::-1].index(last) if last in numbers else 0
            if first > 1 and numbers[first - 2] == last:
                first -= 1
        return [message for _, message in self.kept][first:]


class AcknowledgedSender(Sender):
    """Keeps each fragment until fanin has acknowledged it; send() waits while that is more than `keep` bytes. end() and pause() wait
    until all is acknowledged: nobody would notice a connection that is lost afterwards."""

    version = 4

    def end(self):
        self._deliver()
        try:
            super().end()
        except Ended:  # fanin had heard it: all else is acknowledged
            self.socket.close()

    def pause(self):
        self._deliver()
        super().pause()

    def _deliver(self):
        while self.kept:
            connection = self.reconnects
            self.skip_to(self.kept[-1][0] + 1)  # confirms the last number, over each connection
            while self.kept and self.reconnects == connection:
                self._hear(wait=True)

    def skip_to(self, event):
        try:
            self.socket.sendall(self._header(SKIP_TO, event))
        except OSError:
            self._reconnect()

    def _send(self, event, message):
        if event < self.acknowledged:  # the run went on without it: it is late
            return
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
                part = self.socket.recv(65536)
            except OSError:
                part = b""
            if not part:
                return self._reconnect()
            self.heard += part
            while len(self.heard) >= self.message_size:
                message, self.heard = self.heard[:self.message_size], self.heard[self.message_size:]
                try:
                    self._acknowledge(*HEADER.unpack(self._structure(message)))
                except ConnectionError:
                    return self._reconnect()

    def _acknowledge(self, mark, kind, _flags, _source, end, *_):
        if mark != MARK or kind != ANNOUNCED:
            raise Refused("this is no acknowledgement of fanin")
        self.acknowledged = end
        while self.kept and self.kept[0][0] < end:
            self.kept_bytes -= len(self.kept.popleft()[1])

    def _connect(self):
        self.heard = b""
        self.acknowledged = 0  # over this connection
        return super()._connect()

    def _unread(self, last):
        return [message for event, message in self.kept if last is None or event > last]


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
    parser.add_argument("--acknowledged", action="store_true", help="keep each fragment until the ledger of the run has it")
    parser.add_argument("--give-up", type=float, default=60, help="seconds for which it tries to connect")
    arguments = parser.parse_args()

    try:
        kind = AcknowledgedSender if arguments.acknowledged else Sender
        sender = kind(arguments.url, arguments.source, not arguments.no_crc, arguments.give_up)
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
    again = f", connected again {sender.reconnects} times" if sender.reconnects else ""
    print(f"{arguments.events} fragments in {seconds:.2f} s: {arguments.events / seconds:.0f}/s{again}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
