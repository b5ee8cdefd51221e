"""Files that earlier versions wrote stay readable."""
import gzip
import json

from fanin_run import Folder, SOURCE, fanin, h5py

# Format 1, when sources were absent, silent (deadline) or lost, and the manifest held no gaps and
# nothing of single sources.
NAME = "run000003_bu0_i1_0001.h5"
MANIFEST = """\
{"manifest":1,"run":3,"protocol":"push","integrity":"crc32c","started_unix_ns":1795477570192681793,"fanin":"0.1.0"}
{"file":"run000003_bu0_i1_0001.h5","node":"bu0","incarnation":1}
{"summary":{"built":60,"incomplete":20,"lost":0,"balanced":true,"ended_unix_ns":1795477574765108855}}
"""


def unpack(folder):
    path = folder.path / NAME
    packed = SOURCE / "tests" / "data" / (NAME + ".gz")
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    manifest = path.with_name("run000003.manifest.json")
    manifest.write_text(MANIFEST)
    return path, manifest


def reason_said(path, event):
    done = fanin("inspect", path, "--event", event)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("missing")[1].strip()


def test_a_file_of_format_1_and_its_manifest_are_read():
    with Folder() as folder:
        path, manifest = unpack(folder)
        done = fanin("verify", "--json", "-", manifest)
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads(done.stdout)
        assert found["problems"] == [] and found["events"] == 60, found
        assert reason_said(path, 40).startswith("absent")
        assert reason_said(path, 41).startswith("silent")
        assert reason_said(path, 42).startswith("lost")


def test_a_reason_that_a_later_version_adds_is_no_error():
    with Folder() as folder:
        path, manifest = unpack(folder)
        with h5py().File(path, "r+") as file:
            rows = file["missing"][:]
            rows[0]["reason"] = 77
            file["missing"][:] = rows
        assert fanin("verify", manifest).returncode == 0
        assert "unknown reason" in reason_said(path, 40)
