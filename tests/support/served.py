"""A `fanin serve` under way, for the tests of run control: started, asked, killed and started again."""

import json
import os
import re
import socket
import subprocess
import time

from fanin_run import FANIN, LONGEST_S, Folder


class Api:
    """Asks over the Unix socket, or over TCP with a token."""

    def __init__(self, path=None, port=None, token=None):
        self.path, self.port, self.token = path, port, token

    def connect(self):
        if self.path:
            made = socket.socket(socket.AF_UNIX)
            made.connect(str(self.path))
            made.settimeout(LONGEST_S)
            return made
        return socket.create_connection(("127.0.0.1", self.port), timeout=LONGEST_S)

    def send(self, connection, method, path, body=None, headers=()):
        text = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = {"Host": "localhost", "Content-Length": str(len(text)), "Connection": "close"}
        if self.token:
            lines["Authorization"] = f"Bearer {self.token}"
        lines.update(headers)
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        connection.sendall(head.encode() + b"\r\n" + text)

    def raw(self, method, path, body=None, headers=()):
        """Status, headers and body."""
        with self.connect() as connection:
            self.send(connection, method, path, body, headers)
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), head.decode(), body

    def get(self, path, status=200):
        code, _, body = self.raw("GET", f"/api/v1/{path}")
        assert code == status, (code, body)
        return json.loads(body)

    def post(self, path, body=None, status=202):
        code, _, text = self.raw("POST", f"/api/v1/{path}", body or {})
        assert code == status, (code, text)
        return json.loads(text)

    def events(self, last=None, beats=False):
        """Kind, data and id of each event from now on."""
        with self.connect() as connection:
            headers = {} if last is None else {"Last-Event-ID": str(last)}
            self.send(connection, "GET", "/api/v1/events", headers=headers)
            text = connection.makefile("rb")
            event = {}
            for line in text:
                line = line.decode().rstrip("\r\n")
                key, _, value = line.partition(": ")
                if beats and line.startswith(":"):
                    yield "beat", {}, None
                if key in ("id", "event", "data"):
                    event[key] = value
                elif not line and "data" in event:
                    yield event["event"], json.loads(event["data"]), int(event["id"])
                    event = {}

    def until(self, *states, holds=lambda status: True):
        """The first status with one of these states for which that holds."""
        end = time.monotonic() + LONGEST_S
        for kind, status, _ in self.events(beats=True):
            if kind == "status" and status["state"] in states and holds(status):
                return status
            assert time.monotonic() < end, (states, status)
        raise AssertionError("the stream has ended")


class Served(Folder):
    """Small runs under run control."""

    words = ()
    environment = {}
    rate = "1kHz"

    def __enter__(self):
        super().__enter__()
        self.registry = self.path / "state" / "runs.sqlite"
        self.folder = self.path / "state" / "runs.sqlite.control"
        self.configurations = [self.small(readouts=1, builders=2, rate=self.rate)]
        self.process = None
        self.serve()
        return self

    def __exit__(self, *exception):
        self.kill()
        subprocess.run(["pkill", "-KILL", "-f", str(self.path)], check=False)
        super().__exit__(*exception)

    def command(self, *words):
        return [FANIN, "serve", *map(str, self.configurations), "--registry", str(self.registry), "--listen", "127.0.0.1:0", *self.words,
                *map(str, words)]

    def serve(self, *words):
        self.errors = open(self.path / "serve.log", "a")
        self.process = subprocess.Popen(self.command(*words), stdout=subprocess.PIPE, stderr=self.errors, text=True, cwd=self.path,
                                        env={**os.environ, **self.environment})
        first = self.process.stdout.readline()
        assert first.startswith("run control: "), (first, self.log())
        self.port, self.token = re.search(r":(\d+)/#token=(\w+)", first).groups()
        self.api = Api(path=self.folder / "serve.socket")
        self.web = Api(port=int(self.port), token=self.token)

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.errors.close()
            self.process = None

    def log(self):
        return (self.path / "serve.log").read_text()

    def ctl(self, *words, status=0):
        done = subprocess.run([FANIN, "ctl", *map(str, words), "--registry", str(self.registry)], capture_output=True, text=True,
                              timeout=LONGEST_S)
        assert done.returncode == status, (done.stdout, done.stderr, self.log())
        return done.stdout if status == 0 else done.stderr

    def processes(self, word):
        """Numbers of this test's processes whose command line has that word."""
        found = []
        for entry in os.listdir("/proc"):
            try:
                line = open(f"/proc/{entry}/cmdline", "rb").read().decode(errors="replace").split("\0")
            except (OSError, ValueError):
                continue
            if any(str(self.path) in part for part in line) and word in line:
                found.append(int(entry))
        return found
