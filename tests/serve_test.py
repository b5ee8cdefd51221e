"""Run control: fanin serve leads runs, fanin ctl asks for them, and whatever dies, the run is known."""

import http.server
import json
import os
import random
import signal
import socket
import sqlite3
import struct
import subprocess
import threading
import time

import pytest
from fanin_run import FANIN, LONGEST_S, SOURCE, Port, fanin
from served import Api, Served

KILLS = int(os.environ.get("FANIN_SERVE_KILLS", "10"))  # of run control; a nightly run does 100
STARTS = int(os.environ.get("FANIN_STARTS", "10"))  # of runs, with kills in between; a nightly run does 1000
PREFACE = struct.pack("<8sHHI", b"FANINRCV", 1, 0, 1)  # of a plain sender, source 1


def fragment(event):
    return struct.pack("<HBBIQII", 0xF4A6, 0, 0, 1, event, 3, 0) + b"abc"


def balanced(run):
    return run["balanced"] and run["ok"] and run["fragments"]["read"] == run["fragments"]["built"]


def wait_until(holds):
    end = time.monotonic() + LONGEST_S
    while not holds():
        assert time.monotonic() < end


def test_a_run_is_configured_started_and_stopped_and_all_is_known():
    with Served() as served:
        assert served.ctl("status").startswith("halted")
        served.ctl("configure", "--wait")
        status = served.api.get("status")
        assert (status["state"], status["run"], status["waiting_for"]) == ("configured", 1, "its start")
        assert not list((served.path / "out").glob("*.manifest.json")), "a run that was not started has no manifest"
        served.ctl("start", "--wait", "--comment", "beam on", "--kind", "test")
        served.api.until("running", holds=lambda status: status["events"]["built"] > 100)
        assert json.loads(served.ctl("start", "--json"))["run"] == 1, "it runs already"
        served.ctl("stop", "--wait")
        assert served.api.get("status")["run"] == 2, "the next one is configured"
        served.ctl("halt", "--wait")
        second, first = served.api.get("runs")["runs"]
        assert balanced(first) and (first["comment"], first["kind"], first["reason"]) == ("beam on", "test", "stopped")
        assert second["reason"].startswith("never started: halted by ") and not second["begin_ms"]
        details = served.api.get("runs/1")
        assert [row["to"] for row in details["transitions"]] == ["configuring", "configured", "starting", "running", "draining"]
        assert fanin("verify", *[file for file in details["files"] if file.endswith(".h5")]).returncode == 0
        assert not list((served.path / "out").glob("run000002*")), "a run that was never started leaves no file"
        assert "run 1 begins" in served.ctl("log", "1")
        commands = [one["command"].split()[0] for one in served.api.get("commands")["commands"]]
        assert commands == ["configure", "start", "start", "stop", "halt"]


def test_one_command_starts_from_halted_and_a_limit_acts_as_stop():
    with Served() as served:
        served.ctl("start", "--wait", "--events", "50", "--set", "source.size_mean=300B")
        served.api.until("configured", holds=lambda status: status["run"] == 2)
        run = served.api.get("runs/1")
        assert run["events"]["built"] == 50 and run["reason"] == "run.events" and balanced(run)
        assert "run.events=50" in run["configurations"][0]["overrides"]
        assert 'size_mean = "300B"' in served.api.raw("GET", "/api/v1/runs/1/configuration")[2].decode()


def test_a_changed_file_is_configured_anew_at_the_start():
    with Served() as served:
        served.ctl("configure", "--wait")
        file = served.configurations[0]
        file.write_text(file.read_text() + "# another line\n")
        served.ctl("start", "--wait")
        assert served.api.get("status")["run"] == 2
        assert "configured anew" in served.api.get("runs/1")["reason"]
        assert "the configuration has changed" in served.log()


def test_what_is_not_allowed_changes_nothing():
    with Served() as served:
        for command in ("stop", "recover", "halt"):
            assert "fanin ctl: " in served.ctl(command, status=1)
        version = served.api.get("status")["version"]
        served.api.post("configure", {"version": version + 1}, status=409)
        assert served.api.get("status")["version"] == version
        served.ctl("start", "--wait")
        assert "stop or abort it first" in served.ctl("halt", status=1)
        assert "stop or abort it first" in served.ctl("configure", status=1)
        served.api.post("stop", {"version": 1})  # never refused for that
        served.api.until("configured")


def test_a_configuration_that_is_wrong_is_named_by_file_line_and_key():
    with Served() as served:
        file = served.configurations[0]
        good = file.read_text()
        file.write_text(good.replace("1kHz", "1kPotatoes"))
        why = served.ctl("configure", status=2)
        assert "run.toml:" in why and "trigger.rate" in why
        status = served.api.get("status")
        assert status["state"] == "error" and "trigger.rate" in status["error"] and "run" not in status
        file.write_text(good)
        served.ctl("recover", "--wait")
        served.ctl("configure", "--wait", "--without", "0x100")
        file.write_text(good + "[[builder]]\ncount = 0\n")
        served.ctl("start", status=2)
        assert served.api.get("status")["state"] == "configured", "nothing has been done"
        file.write_text(good.replace('type = "emulator"', 'type = "emulatr"'))  # what only the launcher finds
        served.ctl("start", "--wait", status=1)
        assert "emulatr" in served.api.get("status")["error"]


def test_another_configuration_is_chosen_without_a_restart_of_serve():
    with Served() as served:
        served.kill()
        cosmics = served.write("cosmics.toml", served.configurations[0].read_text().replace("1kHz", "100Hz"))
        served.configurations.append(cosmics)
        served.serve()
        assert served.api.get("status")["configurations"] == ["run", "cosmics"]
        served.ctl("configure", "cosmics", "--wait")
        served.ctl("configure", "run", "--wait")
        assert served.api.get("status")["configuration"] == "run"
        assert "there are: run, cosmics" in served.ctl("configure", "calibration", status=2)


def test_a_node_that_dies_while_configured_is_an_error_that_recover_leaves():
    with Served() as served:
        served.ctl("configure", "--wait", "--set", "run.restart=true")
        [builder] = served.processes("bu1")
        os.kill(builder, signal.SIGKILL)
        status = served.api.until("error")
        assert "bu1" in status["error"]
        served.ctl("recover", "--wait")
        assert served.api.get("status")["state"] == "halted"


def test_a_run_that_lacks_a_node_is_degraded_and_says_which():
    with Served() as served:
        served.ctl("start", "--wait")
        [builder] = served.processes("bu1")
        os.kill(builder, signal.SIGKILL)
        status = served.api.until("running", holds=lambda status: status["degraded"])
        assert any("bu1 is gone" in alarm for alarm in status["alarms"])
        assert status["nodes"]["bu0"]["alive"] and not status["nodes"]["bu1"]["alive"]
        served.ctl("stop", "--wait")
        assert balanced(served.api.get("runs/1")), "the other one has built all"


def test_serve_may_be_killed_again_and_again_and_no_event_is_lost():
    with Served() as served:
        served.ctl("start", "--wait")
        for _ in range(KILLS):
            served.kill()
            served.serve()
            status = served.api.until("running")
            assert status["run"] == 1
        before = status["events"]["built"]
        served.api.until("running", holds=lambda status: status["events"]["built"] > before)
        served.ctl("stop", "--wait")
        run = served.api.get("runs/1")
        assert balanced(run) and run["reason"] == "stopped" and run["begin_ms"]


def test_a_run_that_ends_while_serve_is_dead_is_recorded_when_it_is_back():
    with Served() as served:
        served.ctl("start", "--wait")
        served.kill()
        [launcher] = served.processes("--control-end")
        os.kill(launcher, signal.SIGTERM)  # as pkill fanin does
        wait_until(lambda: not served.processes("--control-end"))
        end = served.folder / "run1.end.json"
        assert end.exists()
        served.serve()
        assert served.api.get("status")["state"] == "halted"
        run = served.api.get("runs/1")
        assert balanced(run) and run["reason"] == "stopped" and run["files"]
        assert not end.exists()


def test_a_configured_run_is_found_again_and_can_be_started():
    with Served() as served:
        served.ctl("configure", "--wait")
        served.kill()
        served.serve()
        served.api.until("configured")
        served.ctl("start", "--wait")
        served.ctl("abort", "--wait")
        assert served.api.get("runs/1")["reason"].startswith("aborted by ")
        assert served.api.get("status")["state"] == "halted"


def test_a_launcher_that_is_killed_ends_the_run_and_the_record_says_why():
    with Served() as served:
        served.ctl("start", "--wait")
        [launcher] = served.processes("--control-end")
        os.kill(launcher, signal.SIGKILL)
        assert "killed by signal 9" in served.api.until("error")["error"]
        assert "killed by signal 9" in served.api.get("runs/1")["reason"]
        served.ctl("recover", "--wait")
        served.ctl("start", "--wait")
        served.kill()
        [launcher] = served.processes("--control-end")
        os.kill(launcher, signal.SIGKILL)
        wait_until(lambda: not served.processes("--control-end"))
        served.serve()
        assert "has left no result" in served.api.get("runs/2")["reason"]


def test_signals_leave_the_run_and_an_interrupt_ends_it():
    with Served() as served:
        served.ctl("start", "--wait")
        for number in (signal.SIGTERM, signal.SIGHUP):
            served.process.send_signal(number)
            assert served.process.wait() == 0
            served.serve()
            served.api.until("running")
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait() == 0
        served.serve()
        assert balanced(served.api.get("runs/1"))


def test_two_serves_on_one_registry_and_a_registry_that_is_none():
    with Served() as served:
        second = subprocess.run(served.command(), capture_output=True, text=True)
        assert second.returncode == 2 and "another `fanin serve`" in second.stderr and second.stderr.count("\n") == 1
        other = served.write("other.sqlite", "not a database, and long enough to be none")
        refused = fanin("serve", served.configurations[0], "--registry", other)
        assert refused.returncode == 1 and "other.sqlite" in refused.stderr
        number = served.write("number.toml", served.configurations[0].read_text() + "[run.metadata]\n")
        number.write_text(number.read_text().replace("[run]", "[run]\nnumber = 3"))
        served.kill()
        served.configurations = [number]
        served.serve()
        assert "run.number" in served.ctl("configure", status=2)


def test_a_registry_that_is_held_stops_no_run():
    with Served() as served:
        served.ctl("start", "--wait")
        holder = sqlite3.connect(served.registry, isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        served.api.post("stop")
        served.api.until("error", holds=lambda status: "holds it" in status["error"])  # the next number
        assert any("written later" in alarm for alarm in served.api.get("status")["alarms"])
        holder.execute("ROLLBACK")
        holder.close()
        served.api.until("error", holds=lambda status: not status["alarms"])
        assert balanced(served.api.get("runs/1"))
        served.ctl("recover", "--wait")


def test_no_number_is_given_twice_whenever_run_control_dies():
    seed = int(os.environ.get("FANIN_SEED", "0")) or random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    with Served() as served:
        away = served.path / "away"
        served.ctl("start", "--wait")
        for _ in range(STARTS):
            with served.api.connect() as connection:
                served.api.send(connection, "POST", rng.choice(["/api/v1/start", "/api/v1/stop", "/api/v1/abort", "/api/v1/configure"]), {})
                if rng.random() < 0.5:
                    connection.recv(1)  # it was answered, or is dead
            if rng.random() < 0.3 and not served.api.get("status")["commands"]["start"]:
                served.api.raw("POST", "/api/v1/start", {})
                served.api.until("running", "configured", "halted", "error")
            if rng.random() < 0.3:
                served.kill()
                away.mkdir(exist_ok=True)
                for file in (served.path / "out").glob("*") if rng.random() < 0.5 else []:
                    file.rename(away / file.name)
                served.serve()
            if served.api.get("status")["state"] == "error":
                served.ctl("recover")
        served.api.raw("POST", "/api/v1/abort", {})
        served.api.until("halted")
        served.kill()
        with sqlite3.connect(served.registry) as registry:
            runs = registry.execute("SELECT number, id, ended_ns FROM runs ORDER BY number").fetchall()
        assert len({id for _, id, _ in runs}) == len(runs) > 0
        ids = {number: id for number, id, _ in runs}
        manifests = [*away.glob("*.manifest.json"), *(served.path / "out").glob("*.manifest.json")]
        assert manifests
        for manifest in manifests:
            head = json.loads(manifest.read_text().splitlines()[0])
            assert head["run_id"] == int(ids[head["run"]], 16), "its number belongs to it alone"
        assert all(ended for _, _, ended in runs), "the end of each is known"


def test_a_registry_in_a_folder_with_a_long_name():
    with Served() as served:
        served.kill()
        served.registry = served.path / ("long" * 40) / "runs.sqlite"
        served.folder = served.registry.with_suffix(".sqlite.control")
        served.serve()
        served.ctl("start", "--wait")
        served.ctl("abort", "--wait")


def hook(folder, name, text):
    path = folder.write(name, f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_hooks_run_around_a_run_and_the_first_one_may_veto():
    with Served() as served:
        served.kill()
        told = served.path / "told"
        moments = ["before-start", "after-start", "before-stop", "after-stop", "unplanned-end"]
        program = hook(served, "tell", f"cat >> {told}; test ! -e {served.path}/veto || {{ echo the magnet is off; exit 1; }}")
        served.words = [word for moment in moments for word in ("--hook", f"{moment}={program}")]
        served.serve()
        (served.path / "veto").touch()
        assert "the magnet is off" in served.ctl("start", "--wait", status=1)
        assert served.api.get("status")["state"] == "configured"
        (served.path / "veto").unlink()
        served.ctl("start", "--wait")
        served.ctl("stop", "--wait")
        served.api.until("configured")
        wait_until(lambda: "after-stop" in told.read_text())
        lines = [json.loads(line) for line in told.read_text().splitlines()]
        assert [line["moment"] for line in lines] == ["before-start", *moments[:4]]
        assert lines[-1]["run"] == 1 and lines[-1]["reason"] == "stopped" and lines[-1]["fragments"]["built"]


def test_a_hook_that_hangs_is_killed_and_one_that_floods_is_read():
    with Served() as served:
        served.kill()
        hang, flood = hook(served, "hang", "sleep 1000"), hook(served, "flood", "yes | head -c 10000000")
        served.words = ("--hook", f"before-start={hang}", "--hook", f"before-stop={flood}", "--hook-limit", "300ms")
        served.serve()
        assert "took longer than 300 ms" in served.ctl("start", "--wait", status=1)
        served.kill()
        served.words = ("--hook", f"before-stop={flood}")
        served.serve()
        served.ctl("start", "--wait")
        served.ctl("stop", "--wait")


def test_over_tcp_each_call_needs_a_token_and_a_known_name():
    with Served() as served:
        nobody = Api(port=int(served.port))
        assert nobody.raw("GET", "/")[0] == 200, "the page has no secrets"
        assert nobody.raw("GET", "/api/v1/status")[0] == 401
        assert Api(port=int(served.port), token="0" * 48).raw("GET", "/api/v1/status")[0] == 401
        assert served.web.get("status")["role"] == "operate"
        view = dict(line.split() for line in (served.folder / "tokens").read_text().splitlines() if line[0] != "#")["view"]
        looks = Api(port=int(served.port), token=view)
        assert looks.get("status")["role"] == "view"
        looks.post("configure", status=403)
        looks.post("runs/1/comment", {"text": "x"}, status=403)
        for header in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Host": "localhost.evil.example:80"}):
            assert served.web.raw("GET", "/api/v1/status", headers=header)[0] == 403
            assert served.web.raw("GET", "/", headers=header)[0] == 403
        assert served.web.raw("GET", "/api/v1/status", headers={"Host": f"127.0.0.1:{served.port}"})[0] == 200
        assert "Content-Security-Policy" in nobody.raw("GET", "/")[1]
        assert fanin("ctl", "status", "--url", f"http://127.0.0.1:{served.port}", "--registry", served.registry).returncode == 0
        served.kill()
        (served.folder / "tokens").chmod(0o644)
        refused = subprocess.run(served.command(), capture_output=True, text=True)
        assert refused.returncode == 1 and "chmod 600" in refused.stderr
        (served.folder / "tokens").chmod(0o600)
        refused = fanin("serve", served.configurations[0], "--registry", served.registry, "--listen", "0.0.0.0:7000")
        assert refused.returncode == 2 and "ssh -L" in refused.stderr


def test_malformed_huge_slow_and_half_sent_requests_and_idle_connections():
    with Served() as served:
        idle = [socket.create_connection(("127.0.0.1", int(served.port))) for _ in range(1000)]
        half = served.web.connect()
        half.sendall(b"POST /api/v1/configure HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert served.web.raw("POST", "/api/v1/configure", b"x" * 70_000)[0] == 413
        assert served.web.raw("POST", "/api/v1/configure", b"{not json")[0] == 400
        assert served.web.raw("POST", "/api/v1/configure", b"[1]")[0] == 400
        assert served.web.raw("DELETE", "/api/v1/status")[0] == 405
        assert served.web.raw("GET", "/api/v1/runs/99")[0] == 404
        assert served.web.raw("GET", "/api/v1/runs/../../etc/passwd")[0] == 404
        assert served.web.raw("GET", "/page/../serve.cpp")[0] == 404
        served.web.post("start", {"kind": "magic"}, status=422)
        served.web.post("start", {"comment": "x" * 20_000}, status=422)
        assert served.web.get("status")["state"] == "halted"
        half.close()
        for one in idle:
            one.close()


def test_random_bytes_and_random_requests_break_nothing():
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    print("seed", seed)
    words = [b"GET", b"POST", b"HEAD", b"/api/v1/", b"status", b"runs/", b"start", b"events", b"nodes/", b"HTTP/1.1", b"\r\n", b"Host: localhost",
             b"Content-Length: ", b"Transfer-Encoding: chunked", b"Last-Event-ID: ", b"{", b"}", b'"set"', b":", b"[", b"]", b"%00", b"..", b"\x00"]
    with Served() as served:
        for _ in range(1200):
            parts = [rng.choice(words) if rng.random() < 0.8 else rng.randbytes(rng.randrange(9)) for _ in range(rng.randrange(1, 25))]
            with served.web.connect() as connection:
                connection.sendall(b" ".join(parts))
            with served.api.connect() as connection:
                connection.sendall(b"GET /api/v1/" + b"".join(parts) + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(600):
            body = {rng.choice(["set", "without", "events", "duration", "version", "comment", "kind", "configuration"]):
                    rng.choice([None, -1, 2**70, "", "x=", [None], ["a=b", {}], {"a": 1}, "\ud83d\ude00", True]) for _ in range(3)}
            path = rng.choice(["configure", "stop", "abort", "halt", "recover", "runs/1/comment", "runs/1/quality", "runs/x/y"])
            assert served.api.raw("POST", f"/api/v1/{path}", body)[0] in (200, 202, 404, 409, 422)
        assert served.process.poll() is None
        assert served.api.get("status")["state"]


def test_events_continue_where_a_connection_was_lost():
    with Served() as served:
        stream = served.api.events()
        kind, status, last = next(stream)
        assert kind == "status" and status["state"] == "halted"
        served.api.post("configure")
        states = []
        for kind, data, last in stream:
            if kind == "status":
                states.append(data["state"])
            if "configured" in states:
                break
        stream.close()
        served.api.post("start")
        served.api.until("running")
        assert next(served.api.events(last))[2] == last + 1, "nothing was missed"
        assert next(served.api.events(1))[1]["state"] == "running", "too old: what is so now"


def test_the_openapi_file_describes_the_real_replies():
    jsonschema = pytest.importorskip("jsonschema", reason="python3-jsonschema is not installed")
    with Served() as served:
        served.ctl("start", "--wait")
        served.api.until("running", holds=lambda status: status["events"]["built"] > 0 and status["sources"])
        described = served.api.get("openapi.json")
        paths = {path: operations["get"]["responses"]["200"]["content"]["application/json"]["schema"]
                 for path, operations in described["paths"].items()
                 if "application/json" in operations.get("get", {}).get("responses", {}).get("200", {}).get("content", {})}
        assert len(paths) >= 8
        for path, schema in paths.items():
            real = served.api.get(path.removeprefix("/").replace("{number}", "1").replace("{name}", "bu0"))
            jsonschema.validate(real, {**schema, "components": described["components"]})
        served.ctl("abort", "--wait")


def test_the_table_of_transitions_in_the_documents_is_that_of_the_code():
    with Served() as served:
        rows = served.api.get("transitions")["transitions"]
        text = (SOURCE / "docs" / "operations.md").read_text()
        written = [line for line in text.splitlines() if line.startswith("| ") and line.count("|") == 6]
        expected = [f"| {row['from']} | `{row['command']}` | {row['via']} | {row['to']} | {row['xdaq']} |" for row in rows]
        assert [line for line in written if "`" in line.split("|")[2]] == expected


def test_run_control_that_dies_while_it_stops_a_run_stops_it_when_it_is_back():
    with Served() as served:
        served.kill()
        served.words = ("--hook", f"before-stop={hook(served, 'slow', 'sleep 100')}")
        served.serve()
        served.ctl("start", "--wait")
        served.api.post("stop")
        served.api.until("draining")
        served.kill()  # before its launcher was asked
        served.words = ()
        served.serve()
        served.api.until("configured", holds=lambda status: status["run"] == 2)
        assert balanced(served.api.get("runs/1"))


def test_a_start_that_could_not_be_recorded_is_seen_by_the_next_run_control():
    with Served() as served:
        served.ctl("configure", "--wait")
        holder = sqlite3.connect(served.registry, isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        served.api.post("start")
        served.api.until("running")
        served.kill()
        holder.execute("ROLLBACK")
        holder.close()
        served.serve()
        served.api.until("running")
        served.ctl("stop", "--wait")
        run = served.api.get("runs/1")
        assert balanced(run) and run["reason"] == "stopped" and run["begin_ms"]


def test_a_registry_under_another_name_is_the_same_one():
    with Served() as served:
        link = served.path / "link.sqlite"
        link.symlink_to(served.registry)
        second = subprocess.run([*served.command(), "--registry", str(link)], capture_output=True, text=True, timeout=LONGEST_S)
        assert second.returncode == 2
        other = served.registry.with_name("runs.2027")
        third = subprocess.run([FANIN, "serve", str(served.write("no.toml", "[run]\n")), "--registry", str(other)], capture_output=True, text=True,
                               timeout=LONGEST_S)
        assert "another `fanin serve`" not in third.stderr, "a registry has a folder of its own"


def test_the_hooks_of_the_examples_hold_a_trigger_and_write_into_a_logbook():
    class Logbook(http.server.BaseHTTPRequestHandler):
        entries = []

        def do_POST(self):
            self.entries.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Logbook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with Served() as served:
        served.kill()
        hooks = SOURCE / "examples" / "hooks"
        hold, logbook = hooks / "hold_trigger.sh", hooks / "logbook.py"
        served.words = [word for hook in (f"before-start={hold}", f"after-start={hold}", f"before-stop={hold}", f"after-stop={logbook}")
                        for word in ("--hook", hook)]
        trigger = served.path / "trigger"
        served.environment = {"FANIN_TRIGGER": str(trigger), "FANIN_LOGBOOK": f"http://127.0.0.1:{server.server_port}/"}
        served.serve()
        assert "the trigger system is off" in served.ctl("start", "--wait", status=1)
        trigger.mkdir()
        served.ctl("start", "--wait", "--comment", "first light")
        served.api.until("running", holds=lambda status: (trigger / "state").read_text() == "released\n")
        served.ctl("stop", "--wait")
        assert (trigger / "state").read_text() == "held\n"
        served.api.until("configured", holds=lambda status: Logbook.entries)
        assert Logbook.entries[0]["subject"] == "Run 1" and "first light" in Logbook.entries[0]["text"]
    server.shutdown()


def test_sampled_events_are_shown_where_builder_units_publish():
    with Served() as served:
        served.ctl("start", "--wait")
        assert "[monitoring]" in served.api.get("sample")["why"]
        served.ctl("abort", "--wait")
        served.ctl("start", "--wait", "--set", "monitoring.every=10")
        served.api.until("running", holds=lambda status: "event" in served.api.get("sample"))
        sample = served.api.get("sample")
        assert sample["builder"] in ("bu0", "bu1") and len(sample["fragments"]) == 2
        assert all(len(one["first"]) == 2 * min(one["bytes"], 32) for one in sample["fragments"])


def test_a_held_run_reads_nothing_of_what_a_sender_has_sent_before_its_start():
    with Served() as served, Port() as port:
        served.kill()
        served.configurations = [served.write("run.toml", f"""
[run]
output = "{served.path}/out"
[network]
url = "tcp://127.0.0.1"
[buffers]
readout = "16MiB"
builder = "48MiB"
[[readout]]
source = [{{ type = "receive", listen = "tcp://127.0.0.1:{port.number}", id = 1, wait_for_sender = true }}]
[[builder]]
""")]
        served.serve()
        served.ctl("configure", "--wait")
        served.api.until("configured", holds=lambda status: "have a sender" in status["waiting_for"])
        with socket.create_connection(("127.0.0.1", port.number)) as sender:
            sender.sendall(PREFACE + b"".join(fragment(event) for event in range(5)))
            served.api.until("configured", holds=lambda status: status["waiting_for"] == "its start")
            assert served.api.get("status")["fragments"]["read"] == 0
            served.ctl("start", "--wait")
            served.api.until("running", holds=lambda status: status["fragments"]["read"] == 5)
        served.ctl("stop", "--wait")
        assert served.api.get("runs/1")["events"]["built"] == 5
