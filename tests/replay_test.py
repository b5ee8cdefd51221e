"""Events built from recorded data are the recorded data, byte for byte.

The expectation is fragments.csv beside the recordings: an independent index of what is where in the files. The built
events are read from the run files with h5py, as users do.
"""

import csv
import zlib

from fanin_run import Folder, Run, SOURCE, check_balanced, data_file, h5py, verify


def replay(folder, example, *settings):
    arguments = [argument for setting in settings for argument in ("--set", setting)]
    with Run(SOURCE / "examples" / example, "--set", "buffers.huge_pages=off", "--set", "buffers.builder=64MiB",
             "--set", "buffers.readout=16MiB", *arguments, cwd=folder.path) as run:
        result = run.finish()
    check_balanced(result)
    assert result["fragments"]["built"] == result["fragments"]["read"], "built fragments"
    verify(result, folder.path)
    return result


def built_fragments(result, folder):
    """(event, source) -> (size, crc32) of everything in the run files."""
    found = {}
    for name in result["files"]:
        with h5py().File(folder.path / name, "r") as file:
            content = file["bytes"][:]
            for row in file["fragments"][:]:
                key = (int(row["event"]), int(row["source"]))
                assert key not in found, f"twice in the files: {key}"
                data = content[int(row["offset"]):int(row["offset"]) + int(row["size"])]
                found[key] = (len(data), zlib.crc32(data.tobytes()))
    return found


def compare(found, expected):
    assert len(found) == len(expected), "number of fragments"
    for key, fragment in expected.items():
        assert key in found, f"event {key[0]}: no fragment of source {key[1]:#x}"
        assert found[key] == fragment, f"event {key[0]}, source {key[1]:#x}: size and crc32"


def hld_expected(key):
    path = data_file("jpet-hld/fragments.csv")
    with open(path, newline="") as file:
        return {(int(row[key]), int(row["source"], 0)): (int(row["length"]), int(row["crc32"], 16))
                for row in csv.DictReader(file) if int(row["source"], 0) != 0x5555}


def sls_expected(data_set):
    path = data_file("sls-modules/fragments.csv")
    with open(path, newline="") as file:
        return {(int(row["frame"]), int(row["source"], 0)): (int(row["length"]), int(row["crc32"], 16))
                for row in csv.DictReader(file) if row["set"] == data_set}


def hld_path():
    return f"source.path={data_file('jpet-hld/xx14099113231.hld')}"


def sls_path(name):
    return f"source.path={data_file('sls-modules/fragments.csv').parent}/{name}"


def check_hld(result):
    assert result["events"]["built"] == 4115, "events"
    assert result["events"]["incomplete"] == 0, "incomplete events"
    assert result["gaps"] == {"count": 2, "ranges": [[50573, 50574], [52233, 52234]]}, "gaps"
    assert result["fragments"]["lost"] == 0, "lost fragments"


def test_hld_events_match_the_recording_and_two_missing_triggers_are_gaps():
    expected = hld_expected("trigger")
    with Folder() as folder:
        result = replay(folder, "replay-hld.toml", hld_path())
        check_hld(result)
        compare(built_fragments(result, folder), expected)


def test_hld_by_pull_is_the_same():
    expected = hld_expected("trigger")
    with Folder() as folder:
        result = replay(folder, "replay-hld.toml", hld_path(), "network.protocol=pull")
        check_hld(result)
        compare(built_fragments(result, folder), expected)


def test_hld_by_sequence_number_has_no_gaps():
    expected = hld_expected("event_seq")
    with Folder() as folder:
        result = replay(folder, "replay-hld.toml", hld_path(), "source.key=sequence")
        assert result["gaps"]["count"] == 0, "gaps"
        compare(built_fragments(result, folder), expected)


def test_hld_in_a_loop_shifts_the_numbers():
    with Folder() as folder:
        result = replay(folder, "replay-hld.toml", hld_path(), "source.loops=5")
        assert result["events"]["built"] == 5 * 4115, "events"
        assert result["events"]["incomplete"] == 0, "incomplete events"
        assert result["gaps"]["count"] == 5 * 2, "gaps"


def test_a_source_that_fails_at_once_is_missing_and_makes_no_gaps():
    """Its readout unit has promised nothing: events begin where the others' begin."""
    for sources in ("0", "*"):  # one beside a good one on its readout unit; all of a readout unit
        with Folder() as folder:
            wrong = folder.write("wrong.hld", "this is no recording" * 100)
            with Run(SOURCE / "examples" / "replay-hld.toml", "--set", hld_path(),
                     "--set", f"readout.0.source.{sources}.path={wrong}", "--set", "buffers.huge_pages=off",
                     cwd=folder.path) as run:
                run.wait_for("error +ru0 +source 0xe000 cannot go on: .*wrong.hld: offset 4")
                result = run.finish(status=1)
            check_balanced(result)
            assert result["gaps"] == {"count": 2, "ranges": [[50573, 50574], [52233, 52234]]}, "gaps"
            assert result["events"]["built"] == 4115, "events"
            assert result["events"]["incomplete"] == 4115, "incomplete events"
            runs = [(part["first"], part["count"], part["reason"]) for part in result["incomplete_events"]
                    if part["source"] == "0xe000"]
            assert runs == [(50002, 571, "absent"), (50574, 1659, "absent"), (52234, 1885, "absent")], (
                "runs of incomplete events, whatever batches they were in")


def test_jungfrau_events_match_the_recording():
    expected = sls_expected("jungfrau_double")
    with Folder() as folder:
        result = replay(folder, "replay-sls.toml", sls_path("jungfrau_double_d{part}_f{file}_0.raw"))
        assert result["events"]["built"] == 10, "events"
        compare(built_fragments(result, folder), expected)


def test_eiger_events_match_the_recording():
    with Folder() as folder:
        expected = sls_expected("eiger_500k_16bit")
        result = replay(folder, "replay-sls-eiger.toml", sls_path("eiger_500k_16bit_d{part}_f{file}_0.raw"))
        compare(built_fragments(result, folder), expected)
        expected = sls_expected("eiger_500k_32bit")
        result = replay(folder, "replay-sls-eiger.toml", sls_path("eiger_500k_32bit_d{part}_f{file}_0.raw"),
                        "source.image_size=512KiB")
        compare(built_fragments(result, folder), expected)


def test_modules_out_of_step_give_three_incomplete_events_that_are_named():
    expected = sls_expected("scan242")
    with Folder() as folder:
        result = replay(folder, "replay-sls-scan242.toml", sls_path("scan242_d{part}_f{file}_3.raw"))
        assert result["events"]["built"] == 3, "events"
        assert result["events"]["incomplete"] == 3, "incomplete events"
        lacks = {}
        for run in result["incomplete_events"]:
            for event in range(run["first"], run["first"] + run["count"]):
                lacks.setdefault(event, set()).add(run["source"])
        assert (lacks == {6558: {"module0", "module2", "module3"}, 6564: {"module1", "module3"},
                            6565: {"module0", "module1", "module2"}}), "what incomplete events lack"
        assert result["gaps"] == {"count": 5, "ranges": [[6559, 6564]]}, "gaps"
        compare(built_fragments(result, folder), expected)
