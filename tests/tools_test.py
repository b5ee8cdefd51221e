"""fanin send, receive, publish, subscribe: real processes, what is sent arrives, ^C ends in order, bad input is said in one
line."""

import contextlib
import json
import re
import signal
import socket
import struct
import subprocess
import threading
from pathlib import Path

import pytest

from fanin_run import FANIN, LONGEST_S, Port, fanin, wait_until


class Tool:
    """One that runs until it is told to end, or ends by itself."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([FANIN, *map(str, arguments), "--json", "-"], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def wait_for(self, pattern):
        said = ""
        for line in self.process.stderr:
            found = re.search(pattern, line)
            if found:
                return found
            said += line
        raise AssertionError(f"ended without {pattern!r}:\n{said}")

    def url(self):
        return self.wait_for(r"listens at (\S+)")[1]

    def end(self, number=None, status=0):
        """The result; a status of None is for the caller to check."""
        if number is not None:
            self.process.send_signal(number)
        out, error = self.process.communicate(timeout=LONGEST_S)
        assert status is None or self.process.returncode == status, f"exit status; {error}"
        return json.loads(out)

    def is_in_state(self, letter):
        return Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == letter

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: self.is_in_state("T"), "it is frozen")


def send_and_receive(url, mode, size):
    with Tool("receive", url, "--mode", mode, "--count", 1000) as receiver:
        done = fanin("send", receiver.url(), "--mode", mode, "--count", 1000, "--size", f"{size}B", "--json", "-")
        assert done.returncode == 0, done.stderr
        sent = json.loads(done.stdout)
        received = receiver.end()
    for result in (sent, received):
        assert (result["messages"], result["bytes"]) == (1000, 1000 * size), "messages and bytes"
        assert result["messages_per_s"] > 0 and result["bytes_per_s"] > 0, f"no rate: {result}"


def test_what_is_sent_is_received():
    for url in ("tcp", "shm"):
        for mode in ("high-throughput", "low-latency"):
            send_and_receive(url, mode, 1000)
    send_and_receive("tcp", "high-throughput", 1_000_000)  # larger than a page


def test_the_result_never_has_more_than_the_count():
    """Though a page, or a turn of the loop, has more messages."""
    for mode in ("high-throughput", "low-latency"):
        with Tool("receive", "tcp", "--mode", mode, "--count", 7) as receiver, \
                Tool("send", receiver.url(), "--mode", mode, "--size", "10B"):
            result = receiver.end()
            assert (result["messages"], result["bytes"]) == (7, 70), f"receive, {mode}"
        with Tool("publish", "tcp", "--tag", 7, "--size", "10B") as publisher, \
                Tool("subscribe", publisher.url(), "--tag", 7, "--mode", mode, "--count", 7) as subscriber:
            result = subscriber.end()
            assert (result["messages"], result["bytes"]) == (7, 70), f"subscribe, {mode}"


def test_a_rate_is_kept():
    with Tool("receive", "tcp") as receiver:
        done = fanin("send", receiver.url(), "--rate", "1kHz", "--count", 200, "--json", "-")
        assert done.returncode == 0, done.stderr
        rate = json.loads(done.stdout)["messages_per_s"]
        assert rate < 1100, f"{rate} messages/s at 1 kHz"


def forward(source, sink, limit):
    """Up to `limit` bytes of one connection into another, then both end."""
    try:
        while limit > 0 and (some := source.recv(min(limit, 65536))):
            sink.sendall(some)
            limit -= len(some)
    except OSError:
        pass
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def test_a_receiver_that_got_no_whole_message_received_for_no_time():
    with Tool("receive", "tcp") as receiver, socket.create_server(("127.0.0.1", 0)) as server:
        port = int(receiver.url().rsplit(":", 1)[1])
        with Tool("send", f"tcp://127.0.0.1:{server.getsockname()[1]}", "--size", "4MiB") as sender:
            left, right = server.accept()[0], socket.create_connection(("127.0.0.1", port))
            back = threading.Thread(target=forward, args=(right, left, 1 << 30))
            back.start()
            forward(left, right, 2_000_000)
            back.join()
            receiver.wait_for("a connection has ended")
            sender.process.kill()
        result = receiver.end(signal.SIGINT)
        assert result["messages"] == 0, "messages"
        assert result["duration_s"] == 0, "duration"


def test_interrupted_tools_end_in_order():
    for number in (signal.SIGINT, signal.SIGTERM):
        with Tool("receive", "tcp") as receiver, Tool("send", receiver.url()) as sender:
            receiver.wait_for("has connected")
            receiver.wait_for("messages")  # a second of it
            sent = sender.end(number)
            receiver.wait_for("closed by the peer")
            received = receiver.end(number)
        assert sent["messages"] > 0, f"nothing was sent: {sent}"
        assert received["messages"] == sent["messages"], "what was accepted arrives"


def test_subscribers_get_their_tag_only():
    with Tool("publish", "tcp", "--tag", 7, "--rate", "10kHz") as publisher:
        url = publisher.url()
        with Tool("subscribe", url, "--tag", 7, "--tag", 8, "--count", 500) as one, \
                Tool("subscribe", url, "--tag", 7, "--mode", "low-latency", "--count", 500) as other, \
                Tool("subscribe", url, "--tag", 9) as nothing:
            assert one.end()["messages"] == 500, "a subscriber"
            assert other.end()["messages"] == 500, "a subscriber with low latency"
            nothing.wait_for("connected to")
            assert nothing.end(signal.SIGINT)["messages"] == 0, "messages of a tag that nobody publishes"
        assert publisher.end(signal.SIGINT)["messages"] >= 500, "published less"


def test_bad_input_is_said_in_one_line():
    for arguments in (("send",), ("send", "tcp"), ("send", "tcp://127.0.0.1:99999"), ("receive", "nothing://x"),
                      ("receive", "inproc://x"), ("send", "tcp://127.0.0.1:9", "--size", "3"),
                      ("send", "tcp://127.0.0.1:9", "--size", "1GiB"), ("send", "tcp://127.0.0.1:9", "--rate", "fast"),
                      ("publish", "tcp"), ("publish", "tcp", "--tag", "x"), ("subscribe", "tcp", "--tag", "1"),
                      ("receive", "tcp", "--mode", "quick"), ("receive", "tcp", "--count", "-1"),
                      ("receive", "tcp", "--count", "0"), ("receive", "tcp", "--duration", "0s"),
                      ("receive", "tcp", "--duration", "-1s"), ("publish", "tcp", "--tag", "-1"),
                      ("receive", "tcp", "--json", "/nowhere/result.json"),
                      ("receive", "tcp?congestion=carrier-pigeon"),
                      ("bench", "stream", "--congestion", "carrier-pigeon"), ("bench", "stream", "--sizes", "1KiB..8B"),
                      ("bench", "stream", "--plot", "/nowhere/plot.svg"),
                      ("bench", "stream", "--json", "/nowhere/result.json")):
        done = fanin(*arguments)
        assert done.returncode == 2, f"status of fanin {' '.join(arguments)}: {done.stderr}"
        assert len(done.stderr.strip().splitlines()) == 1, f"lines of {done.stderr!r}"
        assert len(done.stderr) < 250, f"a long line: {done.stderr}"


def test_nobody_to_send_to_is_a_failure():
    for command in (("send", "tcp://127.0.0.1:1"), ("subscribe", "tcp://127.0.0.1:1", "--tag", 1)):
        done = fanin(*command, "--duration", "50ms", "--quiet", "--json", "-")
        assert done.returncode == 1, f"status: {done.stderr}"
        assert "refused" in done.stderr.splitlines()[-1], done.stderr
        result = json.loads(done.stdout)
        assert not result["ok"] and "refused" in result["error"], f"the result: {result}"
    for command in (("receive", "tcp"), ("publish", "tcp", "--tag", 1)):
        done = fanin(*command, "--duration", "50ms", "--quiet", "--json", "-")
        assert done.returncode == 1, f"status: {done.stderr}"
        assert "has connected" in done.stderr, done.stderr


def test_the_receiver_names_the_port_that_was_chosen():
    with Tool("receive", "tcp") as receiver:
        url = receiver.url()
        assert fanin("send", url, "--count", 1).returncode == 0, "status of send"
        receiver.wait_for("closed by the peer")
        result = receiver.end(signal.SIGINT)
    assert (result["url"], result["ok"], result["error"]) == (url, True, None), "url, ok, error"


def test_fewer_messages_than_count_is_a_failure():
    with Tool("receive", "tcp", "--count", 5) as receiver:
        assert fanin("send", receiver.url(), "--count", 3).returncode == 0, "status of send"
        receiver.wait_for("closed by the peer")
        result = receiver.end(signal.SIGINT, status=1)
    assert "3 of 5" in result["error"], f"the result: {result}"


def test_a_socket_of_another_kind_ends_the_tool():
    with Tool("receive", "tcp", "--mode", "low-latency") as receiver, Tool("publish", "tcp", "--tag", 1) as publisher:
        to_receiver, to_publisher = receiver.url(), publisher.url()
        for command, said in ((("send", to_receiver), "--mode low-latency"), (("send", to_publisher), "subscribe"),
                              (("subscribe", to_receiver, "--tag", 1), "no publisher")):
            done = fanin(*command)
            assert done.returncode == 1, f"status: {done.stderr}"
            assert said in done.stderr.splitlines()[-1], done.stderr


def test_what_is_published_waits_for_its_tag():
    with Tool("publish", "tcp", "--tag", 7, "--count", 1000) as publisher:
        url = publisher.url()
        with Tool("subscribe", url, "--tag", 8) as other:  # a connection, and not for this tag
            publisher.wait_for("has connected")
            with Tool("subscribe", url, "--tag", 7, "--count", 1000) as one:
                assert one.end()["messages"] == 1000, "messages of the subscriber"
            assert publisher.end()["messages"] == 1000, "messages that were published"
            assert other.end(signal.SIGINT)["messages"] == 0, "messages of another tag"


def test_a_subscriber_that_was_cut_off_since_it_was_slow_has_missed_messages_and_not_failed():
    with Tool("publish", "tcp", "--tag", 1, "--slow", "disconnect", "--rate", "1kHz", "--size", "64KiB") as publisher:
        with Tool("subscribe", publisher.url(), "--tag", 1) as subscriber:
            publisher.wait_for("publishing")
            subscriber.wait_for(r" s +[1-9]\d* messages")
            subscriber.process.send_signal(signal.SIGSTOP)
            publisher.wait_for("no subscriber is left")
            subscriber.process.send_signal(signal.SIGCONT)
            publisher.wait_for("publishing")
            subscriber.wait_for("connected to")
            assert subscriber.end(signal.SIGINT)["ok"]


def test_who_does_not_read_is_waited_for_until_it_is_given_up():
    for arguments in ((), ("--duration", "1s")):
        with Tool("receive", "tcp") as receiver, Tool("send", receiver.url(), *arguments) as sender:
            sender.wait_for("connected to")
            receiver.process.send_signal(signal.SIGSTOP)
            if not arguments:
                sender.wait_for(" messages ")  # a second of it: all is full
                sender.process.send_signal(signal.SIGINT)
            sender.wait_for("waiting until the other side has taken what was sent")
            result = sender.end(None if arguments else signal.SIGINT, status=1)
            assert not result["delivered"] and "gave up" in result["error"], f"the result: {result}"


def test_a_receiver_ends_in_order_though_a_sender_is_frozen():
    with Tool("receive", "tcp", "--duration", "1s") as receiver, Tool("send", receiver.url(), "--rate", "1kHz") as sender:
        receiver.wait_for("has connected")
        sender.process.send_signal(signal.SIGSTOP)
        receiver.end()


@pytest.mark.parametrize("network", ("tcp", "shm"))
def test_what_a_receiver_had_not_taken_when_it_was_killed_is_not_delivered(network):
    with Tool("receive", network, "--mode", "low-latency") as receiver, \
            Tool("send", receiver.url(), "--mode", "low-latency", "--count", 10_000_000) as sender:
        sender.wait_for("connected to")
        receiver.process.send_signal(signal.SIGSTOP)
        sender.wait_for(" messages ")  # a second of it: all is full
        receiver.process.send_signal(signal.SIGKILL)
        sender.wait_for("trying again")
        result = sender.end(signal.SIGINT, status=1)
        assert not result["delivered"] and "gave up" in result["error"], f"the result: {result}"


CONNECTED = ("01", "08")  # states in /proc/net/tcp; 08: the other side has shut down its half
NOT_ACCEPTED = "02"  # in /proc/net/unix
MORE_THAN_A_TURN = 20_000  # bytes in messages of 64 B, of which a receiver takes 64 at a time
PREFACE = 32  # bytes, with which each side of a connection over tcp begins


def has_unread_bytes(port, least=1):
    """Whether a connection at this local port has received so much that its process has not read."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, queues = line.split()[:5]
        local_port, unread = (int(pair.split(":")[1], 16) for pair in (local, queues))
        if local_port == port and state in CONNECTED and unread >= least:
            return True
    return False


def has_one_to_accept(port):
    """Whether somebody has connected to shm://127.0.0.1:port, and is not accepted yet."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return any(fields[5] == NOT_ACCEPTED and fields[-1] == f"@fanin/shm/127.0.0.1:{port}" for fields in lines)


@pytest.mark.parametrize("mode", ("high-throughput", "low-latency"))
@pytest.mark.parametrize("network, arguments, unread", (("tcp", (), MORE_THAN_A_TURN), ("shm", (), None),
                                                        ("tcp", ("--rate", "10kHz"), MORE_THAN_A_TURN),
                                                        ("tcp", ("--rate", "1kHz"), 1)))
def test_what_an_interrupted_receiver_has_not_taken_is_not_delivered(network, arguments, unread, mode):
    with Tool("receive", network, "--mode", mode) as receiver:
        url = receiver.url()
        with Tool("send", url, "--mode", mode, *arguments) as sender:
            sender.wait_for("connected to")
            receiver.freeze()
            if network == "tcp":
                port = int(url.rsplit(":", 1)[1])
                wait_until(lambda: has_unread_bytes(port, unread), f"the receiver has {unread} unread bytes")
            else:
                wait_until(lambda: sender.is_in_state("S"), "the sender waits: all is full")
            receiver.process.send_signal(signal.SIGINT)
            received = receiver.end(signal.SIGCONT)
            sender.wait_for("trying again")
            sent = sender.end(signal.SIGINT, status=None)
    assert received["messages"] <= sent["messages"], f"more than was sent: {received}, {sent}"
    assert received["ok"] and received["bytes"] == 64 * received["messages"], f"what was received: {received}"
    all_taken = received["messages"] == sent["messages"]
    assert sent["delivered"] == sent["ok"] == all_taken, f"{received['messages']} messages were received: {sent}"
    assert sender.process.returncode == (0 if all_taken else 1), f"exit status: {sent}"
    assert all_taken or "gave up" in sent["error"], f"the result: {sent}"


def send_to_the_next_receiver(url, mode, sender):
    """To a sender of 1000 messages, of which the receiver before has taken none."""
    sender.wait_for("trying again")
    with Tool("receive", url, "--mode", mode, "--count", 1000) as receiver:
        received, sent = receiver.end(), sender.end()
    assert sent["delivered"], f"the result: {sent}"
    for result in (sent, received):
        assert (result["messages"], result["connections"]) == (1000, 1), f"messages and connections: {result}"


def end_at_once(connection):
    connection.close()


def end_with_an_unread_hello(connection):
    """The preface is the same in both directions; the hello of the socket follows the answer."""
    connection.sendall(connection.recv(PREFACE))
    assert connection.recv(1, socket.MSG_PEEK), "no hello"
    connection.close()


def end_in_order_without_the_hello(connection):
    """A real receiver, which the hello does not reach, says at its end what it has taken: nothing."""
    with Tool("receive", "tcp") as receiver:
        port = int(receiver.url().rsplit(":", 1)[1])
        with connection, socket.create_connection(("127.0.0.1", port)) as onward:
            onward.sendall(connection.recv(PREFACE))
            back = threading.Thread(target=forward, args=(onward, connection, 1 << 30))
            back.start()
            assert connection.recv(PREFACE), "no hello"
            receiver.end(signal.SIGINT, status=1)  # nobody came
            back.join()


HELLO = 8 + 32  # bytes of the first message, and of its header


@pytest.mark.parametrize("mode", ("high-throughput", "low-latency"))
def test_what_a_receiver_has_not_read_that_then_talks_nonsense_is_not_delivered(mode):
    with Tool("receive", "tcp", "--mode", mode) as receiver, socket.create_server(("127.0.0.1", 0)) as server:
        port = int(receiver.url().rsplit(":", 1)[1])
        with Tool("send", f"tcp://127.0.0.1:{server.getsockname()[1]}", "--mode", mode, "--rate", "1kHz") as sender:
            connection = server.accept()[0]
            server.close()
            with connection, socket.create_connection(("127.0.0.1", port)) as onward:
                for size in (PREFACE, HELLO):
                    onward.sendall(connection.recv(size, socket.MSG_WAITALL))
                    connection.sendall(onward.recv(size, socket.MSG_WAITALL))
                assert connection.recv(1, socket.MSG_PEEK), "no message"
                nonsense = b"\xff" * 32
                connection.sendall(struct.pack("<II", len(nonsense), len(nonsense) ^ 0x464E494E) + nonsense)
                sender.wait_for("trying again")
            sent = sender.end(signal.SIGINT, status=1)
    assert sent["messages"] > 0 and not sent["delivered"] and "gave up" in sent["error"], f"the result: {sent}"


@pytest.mark.parametrize("mode", ("high-throughput", "low-latency"))
@pytest.mark.parametrize("end", (end_at_once, end_with_an_unread_hello, end_in_order_without_the_hello))
def test_a_receiver_that_ends_before_it_answers_costs_no_message(end, mode):
    with Port() as port:
        url = f"tcp://127.0.0.1:{port.number}"
        server = socket.create_server(("127.0.0.1", port.number))
        with Tool("send", url, "--mode", mode, "--count", 1000) as sender:
            with server:
                end(server.accept()[0])
            send_to_the_next_receiver(url, mode, sender)


@pytest.mark.parametrize("network", ("tcp", "shm"))
def test_a_receiver_that_is_killed_before_it_answers_costs_no_message(network):
    with Port() as port:
        url = f"{network}://127.0.0.1:{port.number}"
        with Tool("receive", url) as receiver:
            receiver.url()
            receiver.freeze()
            with Tool("send", url, "--count", 1000) as sender:
                has_come = has_unread_bytes if network == "tcp" else has_one_to_accept
                wait_until(lambda: has_come(port.number), "the sender has connected")
                receiver.process.kill()
                send_to_the_next_receiver(url, "high-throughput", sender)


def test_a_message_over_the_limit_is_said():
    with Tool("receive", "tcp", "--mode", "low-latency") as receiver:
        done = fanin("send", receiver.url(), "--mode", "low-latency", "--size", "4MiB", "--count", 1)
        assert done.returncode == 2, f"status: {done.stderr}"
        assert "takes only smaller" in done.stderr, done.stderr


def test_a_message_over_the_limit_of_a_subscriber_is_said_and_others_get_it():
    with Tool("publish", "tcp", "--tag", 1, "--rate", "10Hz", "--size", "64MiB") as publisher:
        url = publisher.url()
        with Tool("subscribe", url, "--tag", 1, "--mode", "low-latency") as one:
            one.wait_for("connected to")
            with Tool("subscribe", url, "--tag", 1, "--count", 1) as other:
                publisher.wait_for("--size 64MiB: a subscriber takes only smaller messages, and gets none")
                assert other.end()["messages"] == 1, "messages of the one that takes them"
                assert not publisher.end(signal.SIGINT, status=2)["ok"]
            assert one.end(signal.SIGINT)["messages"] == 0, "messages that are too large"
