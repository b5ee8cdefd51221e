"""Senders at one port of a whole run: the example in Python, plain and reliable, strays, connections that break."""

import os
import re
import socket
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager

from support.fanin_run import LONGEST_S, SOURCE, Folder, Port, Run, check_balanced, fanin, h5py, verify

sys.path.append(str(SOURCE / "examples/receive"))
from send_fragments import ANNOUNCED, HEADER, MAGIC, MARK, NUMBER, PREFACE, RELIABLE, REPLY, PlainSender, Sender, checked  # noqa: E402

SENDER = SOURCE / "examples/receive/send_fragments.py"
SOURCES = 6
EVENTS = 400
# Two readout units in one process; all their sources at one address.
SHARED = """
[run]
output = "{output}"
[network]
url = "tcp://127.0.0.1"
[buffers]
readout = "16MiB"
builder = "48MiB"
huge_pages = "off"
[source]
type = "receive"
listen = "tcp://127.0.0.1:{port}"
wait_for_sender = true
fragment_max = "32KiB"
{more}
[[readout]]
count = 2
source = [{{ id = 0x300, count = 3 }}]
[[builder]]
[[process]]
nodes = ["ru0", "ru1"]
"""


def shared(folder, port, more=""):
    return folder.write("run.toml", SHARED.format(output=folder.path / "out", port=port.number, more=more))


def example(port, source, *more):
    return subprocess.Popen([sys.executable, SENDER, f"tcp://127.0.0.1:{port.number}", "--source", hex(source), "--events", str(EVENTS),
                             "--size", "500", *more], stdout=subprocess.PIPE, text=True)


def check_all_built(result):
    check_balanced(result)
    assert result["fragments"]["read"] == SOURCES * EVENTS, "fragments"
    assert result["fragments"]["built"] == SOURCES * EVENTS, "fragments"
    assert result["events"]["incomplete"] == 0, "incomplete"
    found = verify(result)
    assert (found["events"], found["complete"]) == (EVENTS, EVENTS), "verify"


def test_a_run_begins_when_the_senders_of_all_sources_at_one_port_are_there():
    with Folder() as folder, Port() as port:
        config = shared(folder, port)
        assert fanin("check", config).returncode == 0, "one address for several sources"
        with Run(config) as run:
            for _ in range(SOURCES):
                run.wait_for("waits for fragments at .*the run begins when its sender has connected")
            senders = [example(port, 0x300 + i) for i in range(SOURCES - 1)]
            for _ in senders:
                run.wait_for("127.0.0.1:.* connected")
            assert "events " not in run.text(), "it has begun without the last sender"
            senders.append(example(port, 0x300 + SOURCES - 1, "--plain"))
            result = run.finish()
            for sender in senders:
                assert sender.wait() == 0, "a sender failed"
                told = sender.stdout.read()
                assert told.endswith(", 0 dropped or late\n") == (sender is not senders[-1]), told
                sender.stdout.close()
        check_all_built(result)


def on_the_page(language):
    return re.findall(rf"^```{language}\n(.*?)^```", (SOURCE / "docs/receive-format.md").read_text(), flags=re.M | re.S)


def test_numbers_that_nobody_has_are_no_events():
    """Time stamps for numbers: of `--events 100` there are a hundred, and not one within a hundred ticks."""
    def send(port, source, stamps):
        try:
            sender = PlainSender(f"tcp://127.0.0.1:{port.number}", source)
            for stamp in stamps:
                sender.send(stamp, b"x" * 100)
        except OSError:  # the run has ended
            pass

    for stamps, last in ((range(48211, 48211 + 937 * 400, 937), 48211 + 937 * 99), (range(7, 407), 106)):
        with Folder() as folder, Port() as port:
            with Run(shared(folder, port), "--events", "100") as run:
                senders = [threading.Thread(target=send, args=(port, 0x300 + i, stamps)) for i in range(SOURCES)]
                for sender in senders:
                    sender.start()
                result = run.finish()
                for sender in senders:
                    sender.join()
            check_balanced(result)
            assert (result["events"]["built"], result["events"]["incomplete"]) == (100, 0), result["events"]
            assert result["ended_by"] == "run.events", result
            with h5py().File(result["files"][0]) as file:
                assert list(file["events"]["event"][[0, -1]]) == [stamps[0], last], file["events"]["event"][:]


def test_the_plain_senders_on_the_page_are_whole_programs():
    (in_python,), (in_c,) = on_the_page("python"), on_the_page("c")
    with Folder() as folder, Port() as port:
        script = folder.write("sender.py", in_python.replace("7500", str(port.number)))
        text = folder.write("sender.c", in_c.replace("7500", str(port.number)).replace("0x300", "0x301"))
        program = folder.path / "sender"
        subprocess.run([os.environ.get("CC", "cc"), "-Wall", "-Wextra", "-Werror", "-o", program, text], check=True)
        with Run(shared(folder, port), "--set", "readout.0.count=1", "--set", "readout.0.source.0.count=2",
                 "--set", 'process.0.nodes=["ru0"]') as run:
            run.wait_for("waits for fragments")
            senders = [subprocess.Popen(command) for command in ([sys.executable, script], [program])]
            result = run.finish()
            assert [sender.wait() for sender in senders] == [0, 0], "a sender failed"
        check_balanced(result)
        assert (result["events"]["built"], result["events"]["incomplete"]) == (1000, 0), result["events"]


def test_the_bytes_on_the_page_are_those_of_the_format():
    plain, reliable = (bytes.fromhex(text) for text in on_the_page("text"))
    assert plain == PREFACE.pack(MAGIC, 1, 0, 0x300) + HEADER.pack(MARK, 0, 0, 0x300, 5, 3, 0) + b"abc"
    preface = PREFACE.pack(MAGIC, 1, RELIABLE, 0x300) + NUMBER.pack(0x1122334455667788)
    assert reliable == checked(preface) + checked(REPLY.pack(MARK, ANNOUNCED, 0, 0x300, 6, 1))


class Breaking:
    """Passes bytes on to the port, and breaks the first connections after so many bytes."""

    def __init__(self, port, after):
        self.port, self.after = port, list(after)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.number = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection = self.server.accept()[0]
            except OSError:
                return
            limit = self.after.pop(0) if self.after else None
            try:
                there = socket.create_connection(("127.0.0.1", self.port.number))
            except OSError:  # the run has ended
                connection.close()
                continue
            threading.Thread(target=self.pass_on, args=(connection, there, limit), daemon=True).start()
            threading.Thread(target=self.pass_on, args=(there, connection, None), daemon=True).start()

    @staticmethod
    def pass_on(source, target, limit):
        passed = 0
        try:
            while limit is None or passed < limit:
                part = source.recv(65536 if limit is None else min(65536, limit - passed))
                if not part:
                    return target.shutdown(socket.SHUT_WR)
                target.sendall(part)
                passed += len(part)
            source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
            source.close()
            target.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.server.close()


def test_connections_that_break_cost_the_example_sender_nothing():
    with Folder() as folder, Port() as port, Breaking(port, [1000, 30_000, 30_001, 70_000]) as breaking:
        config = shared(folder, port)
        with Run(config) as run:
            for _ in range(SOURCES):
                run.wait_for("waits for fragments")
            senders = [example(port, 0x300 + i) for i in range(SOURCES - 1)]
            senders.append(example(breaking, 0x300 + SOURCES - 1))
            result = run.finish()
            for sender in senders:
                assert sender.wait() == 0, "a sender failed"
            assert "connected again 4 times" in senders[-1].stdout.read()
            for sender in senders:
                sender.stdout.close()
        check_all_built(result)
        assert result["sources"]["0x305"]["counters"]["connections"] == 5, result["sources"]


def test_a_sender_that_comes_when_the_run_has_gone_on_without_it_ends():
    with Folder() as folder, Port() as port:
        config = shared(folder, port)
        with Run(config, "--set", "source.wait_for_sender=false", "--set", "event.deadline=200ms") as run:
            for _ in range(SOURCES):
                run.wait_for("waits for fragments")
            senders = [example(port, 0x300 + i) for i in range(SOURCES - 1)]
            run.wait_for(f" {EVENTS} events ")
            senders.append(example(port, 0x300 + SOURCES - 1))
            for sender in senders:
                assert sender.wait(timeout=LONGEST_S) == 0, "a sender failed"
            assert f"{EVENTS} dropped or late" in senders[-1].stdout.read(), "it does not know that none was built"
            for sender in senders:
                sender.stdout.close()
            result = run.finish(status=1)
        assert result["error"].startswith("source 0x305: nothing that it sent was built (400 late, 0 dropped)"), result["error"]
        check_balanced(result)
        assert result["events"]["built"] == EVENTS, result["events"]
        assert result["sources"]["0x305"]["missing"] == EVENTS, result["sources"]["0x305"]


def test_who_is_not_allowed_does_not_send():
    with Folder() as folder, Port() as port:
        config = shared(folder, port, 'allow = ["10.1.0.0/16", "2001:db8::/32"]')
        with Run(config) as run:
            run.wait_for("waits for fragments")
            sender = example(port, 0x300, "--give-up", "0.1")
            run.wait_for("127.0.0.1:.* disconnected: not_allowed")
            assert sender.wait() == 1, "it was allowed to send"
            sender.stdout.close()
            run.signal()
            run.finish(1)  # it never began


def test_a_sender_without_a_source_is_told_so():
    with Folder() as folder, Port() as port:
        config = shared(folder, port)
        with Run(config) as run:
            run.wait_for("waits for fragments")
            done = subprocess.run([sys.executable, SENDER, f"tcp://127.0.0.1:{port.number}", "--source", "7"], capture_output=True,
                                  text=True)
            assert done.returncode == 1, "a sender of source 7"
            assert "source 0x7: there is none at this address" in done.stderr, done.stderr
            run.signal()
            run.finish(1)  # it never began


def test_a_number_that_cannot_be_costs_the_example_sender_only_its_fragment():
    with Folder() as folder, Port() as port:
        with Run(shared(folder, port), "--set", "readout.0.count=1", "--set", "readout.0.source.0.count=1",
                 "--set", 'process.0.nodes=["ru0"]') as run:
            run.wait_for("waits for fragments")
            sender = Sender(f"tcp://127.0.0.1:{port.number}", 0x300)
            for number in (0, 1, 2**64 - 1, 2, 3):
                sender.send(number, b"data")
            sender.end()
            assert sender.summary() == ", 1 dropped or late"
            run.wait_for(f"number_jump \\(1 so far\\), the last one with number {2**64 - 1}")
            result = run.finish()
        check_balanced(result)
        assert (result["fragments"]["built"], result["fragments"]["dropped"]) == (4, 1), result["fragments"]


def test_a_list_of_networks_that_is_wrong_is_refused():
    with Folder() as folder, Port() as port:
        done = fanin("check", shared(folder, port, 'allow = ["10.1.2.3/16"]'))
        assert done.returncode == 2, "check"
        assert 'allow: "10.1.2.3/16" has bits set behind the first 16' in done.stderr, done.stderr


def test_what_is_not_acknowledged_survives_the_death_of_the_readout_units():
    with Folder() as folder, Port() as port:
        config = shared(folder, port)
        with Run(config, "--set", "run.restart=true") as run:
            for _ in range(SOURCES):
                run.wait_for("waits for fragments")
            senders = [example(port, 0x300 + i, "--rate", "200") for i in range(SOURCES)]
            run.wait_for_events(50)
            run.kill("ru0")
            run.wait_for("readout unit 'ru1' has joined")
            result = run.finish()
            for sender in senders:
                assert sender.wait() == 0, "a sender failed"
                assert "connected again" in sender.stdout.read(), "it did not come back"
                sender.stdout.close()
        check_balanced(result)
        fragments = result["fragments"]
        # What was announced and not acknowledged counts as lost with the first incarnation, and is read again by the second one.
        assert SOURCES * EVENTS - fragments["lost"] <= fragments["built"] <= SOURCES * EVENTS, fragments
        assert result["events"]["built"] == EVENTS, result["events"]
        assert (fragments["late"], fragments["dropped"]) == (0, 0), fragments
        assert verify(result)["events"] == result["events"]["built"], "verify"


@contextmanager
def run_of_one_source(folder, port, *more):
    with Run(shared(folder, port), "--set", "readout.0.count=1", "--set", "readout.0.source.0.count=1",
             "--set", 'process.0.nodes=["ru0"]', *more) as run:
        run.wait_for("waits for fragments")
        yield run


def test_the_example_sender_confirms_its_last_number_over_each_connection():
    with Folder() as folder, Port() as port:
        with run_of_one_source(folder, port) as run:
            sender = Sender(f"tcp://127.0.0.1:{port.number}", 0x300)
            for event in range(200):
                if event % 3 != 0:  # it is not known whether 199 is right
                    sender.send(event, b"data")

            def lose(_):
                del sender.skip_to  # only this time
                sender.socket.shutdown(socket.SHUT_RDWR)

            sender.skip_to = lose
            sender.pause()
            assert not sender.kept and sender.reconnects > 0
            run.signal()
            result = run.finish()
        assert result["events"]["built"] == 133, result["events"]


def test_a_left_over_fragment_holds_up_no_reliable_sender():
    with Folder() as folder, Port() as port:
        with run_of_one_source(folder, port) as run:
            sender = Sender(f"tcp://127.0.0.1:{port.number}", 0x300)
            for event in (5001, *range(1, 11)):
                sender.send(event, b"data")
            sender.end()
            assert not sender.kept
            assert sender.summary() == ", 1 dropped or late"
            result = run.finish()
        assert (result["fragments"]["built"], result["fragments"]["dropped"]) == (10, 1), result["fragments"]


def test_an_example_sender_whose_front_end_counts_again_is_in_doubt():
    for restarted in (True, False):  # with its front end, or only the front end
        with Folder() as folder, Port() as port:
            with run_of_one_source(folder, port) as run:
                sender = Sender(f"tcp://127.0.0.1:{port.number}", 0x300)
                for event in range(100):
                    sender.send(event, b"the first trigger")
                sender.pause()
                if restarted:
                    sender.socket.close()
                    sender = Sender(f"tcp://127.0.0.1:{port.number}", 0x300)
                for event in range(150):
                    sender.send(event, b"another trigger")
                sender.pause()
                assert sender.summary().endswith("100 dropped or late"), sender.summary()
                run.signal()
                result = run.finish(status=1)
            source = result["sources"]["0x300"]
            assert source["in_doubt"] == 50, source
            assert "began to count again" in result["error"], result["error"]


def test_what_a_restarted_sender_sends_is_in_doubt_whatever_its_data_and_what_it_says_to_skip():
    # step between numbers, fragments before, kind of sender, its payload, and what is compared
    for step, before, kind, payload, integrity in ((1, 100, Sender, b"", "crc32c"), (3, 100, Sender, b"data", "crc32c"),
                                                   (1, 100, PlainSender, b"data", "none"), (50, 6, PlainSender, b"data", "crc32c")):
        with Folder() as folder, Port() as port:
            with run_of_one_source(folder, port, "--set", f'event.integrity="{integrity}"') as run:
                url = f"tcp://127.0.0.1:{port.number}"
                sender = kind(url, 0x300)
                for number in range(0, step * before, step):
                    sender.send(number, payload)
                sender.skip_to(step * before)
                sender.pause()
                run.wait_for(rf" {before} events ")
                sender.socket.close()
                sender = kind(url, 0x300)
                for number in range(0, step * (before + 50), step):
                    sender.send(number, payload)
                    if number % (10 * step) == 0:  # the end of a spill
                        sender.skip_to(number + step)
                        sender.pause()
                sender.end()
                result = run.finish(status=1)
            assert (result["fragments"]["built"], result["sources"]["0x300"]["in_doubt"]) == (before + 50, 50), result["sources"]
            assert "source 0x300 began to count again in mid-run: 50 fragments in doubt" in result["error"], result["error"]


def test_a_counter_that_wraps_at_the_end_of_a_run_fails_it_with_the_width_to_be_given():
    with Folder() as folder, Port() as port:
        with run_of_one_source(folder, port) as run:
            sender = PlainSender(f"tcp://127.0.0.1:{port.number}", 0x300)
            for event in range(65500, 65536):
                sender.send(event, b"data")
            run.wait_for(" 36 events ")
            for event in range(10):
                sender.send(event, b"other")
            run.wait_for("fragments dropped: number_back")
            run.signal()
            result = run.finish(status=1)
        assert result["events"]["built"] == 36, result["events"]
        assert "`counter_bits = 16`" in result["failed_sources"]["0x300"], result
        assert "`counter_bits = 16`" in result["error"], result["error"]


class LosesTheEnd:
    """A connection that is lost when the other side has read the end."""

    def __init__(self, connection):
        self.connection = connection

    def __getattr__(self, name):
        return getattr(self.connection, name)

    def recv(self, size):
        while self.connection.recv(size):
            pass
        raise ConnectionResetError


def test_the_example_sender_that_loses_its_connection_at_the_end_has_delivered_all():
    with Folder() as folder, Port() as port:
        with Run(shared(folder, port), "--set", "readout.0.count=1", "--set", "readout.0.source.0.count=2",
                 "--set", 'process.0.nodes=["ru0"]') as run:
            run.wait_for("waits for fragments")
            senders = [Sender(f"tcp://127.0.0.1:{port.number}", 0x300 + i) for i in range(2)]
            for event in range(200):
                for sender in senders:
                    sender.send(event, b"data")
            for sender in senders:
                sender._deliver()
            senders[0].socket = LosesTheEnd(senders[0].socket)
            for sender in senders:  # the second one keeps the run
                sender.end()
            assert senders[0].reconnects == 0, "it was sent away: its data have ended"
            result = run.finish()
        assert (result["events"]["built"], result["events"]["incomplete"]) == (200, 0), result["events"]


def test_the_example_sender_that_pauses_leaves_nothing_behind_that_could_be_lost():
    with Folder() as folder, Port() as port:
        with run_of_one_source(folder, port) as run:
            sender = Sender(f"tcp://127.0.0.1:{port.number}", 0x300)
            for event in range(0, 20, 2):
                sender.send(event, b"data")
            sender.pause()
            assert not sender.kept
            run.wait_for(" 10 events ")  # what is announced and not built would be lost
            run.kill("ru0")
            run.wait_for("is gone")
            run.signal()
            result = run.finish()
        check_balanced(result)
        assert (result["events"]["built"], result["events"]["lost"]) == (10, 0), result["events"]


def test_a_front_end_that_counts_again_and_never_passes_its_last_number_fails_the_run():
    for payload, status in ((b"another trigger", 1), (b"the first trigger", 0)):  # the second one is only sent once more
        with Folder() as folder, Port() as port:
            with run_of_one_source(folder, port) as run:
                sender = PlainSender(f"tcp://127.0.0.1:{port.number}", 0x300)
                for event in range(100):
                    sender.send(event, b"the first trigger")
                run.wait_for(" 100 events ")
                for event in range(90):
                    sender.send(event, payload)
                sender.end()
                result = run.finish(status)
            assert (result["fragments"]["built"], result["fragments"]["dropped"]) == (100, 90), result["fragments"]
            if status != 0:
                assert result["error"].startswith("source 0x300 of ru0 has failed: all that it sent last was dropped: none of 90 fragments "
                                                  "has a number above 99"), result["error"]
                assert "FAILED: source 0x300 of ru0 has failed" in run.text(), run.text()


def test_a_required_source_whose_sender_sends_nothing_fails_the_run_unless_it_says_so():
    for says in ("", "end", "pause", "skip_to"):
        with Folder() as folder, Port() as port:
            with Run(shared(folder, port), "--set", "readout.0.count=1", "--set", "readout.0.source.0.count=2",
                     "--set", 'process.0.nodes=["ru0"]', "--set", "event.deadline=100ms") as run:
                for _ in range(2):
                    run.wait_for("waits for fragments")
                senders = [PlainSender(f"tcp://127.0.0.1:{port.number}", source) for source in (0x300, 0x301)]
                for event in range(100):
                    senders[0].send(event, b"data")
                if says:
                    getattr(senders[1], says)(*([100] if says == "skip_to" else []))
                run.wait_for(" 100 events ")
                run.signal()
                result = run.finish(0 if says else 1)
            assert result["events"]["incomplete"] == 100, result["events"]
            assert ("FAILED: source 0x301 of ru0 has failed: its sender was connected, and sent nothing" in run.text()) == (not says), run.text()
