"""Event building in the course of time (fanin bench evb --every), on sensors that are made up."""

import csv
import json
import xml.etree.ElementTree

from support.fanin_run import Folder, fanin

SHORT = ("bench", "evb", "--url", "tcp", "--fragment-size", "2KiB", "--duration", "1500ms", "--wait", "block", "-q")


class Host(Folder):
    """A folder that looks like a host with sensors."""

    def put(self, path, text):
        (self.path / path).parent.mkdir(parents=True, exist_ok=True)
        self.write(path, f"{text}\n")

    def with_sensors(self, temperature=48500, power=213000000):
        self.put("sys/class/hwmon/hwmon0/name", "coretemp")
        self.put("sys/class/hwmon/hwmon0/temp1_label", "Package id 0")
        self.put("sys/class/hwmon/hwmon0/temp1_input", temperature)
        self.put("sys/class/hwmon/hwmon1/name", "power_meter")
        self.put("sys/class/hwmon/hwmon1/power1_average", power)
        self.put("sys/class/powercap/intel-rapl:0/name", "package-0")
        self.put("sys/class/powercap/intel-rapl:0/energy_uj", 123456)  # it stands still
        return self


def measure(host, *more):
    done = fanin(*SHORT, "--every", "300ms", "--sensors", host.path, "--json", host.path / "result.json", *more)
    assert done.returncode == 0, done.stderr
    return json.loads((host.path / "result.json").read_text())["timeline"], done.stdout


def test_a_side_load_shows_in_the_course_of_time():
    with Host() as host:
        timeline, table = measure(host.with_sensors(), "--side-load", 1, "--side-load-from", "50%", "--csv", host.path / "t.csv",
                                  "--plot", host.path / "t.svg")
        moments = timeline["moments"]
        assert len(moments) == 5, "a moment each 300 ms"
        assert timeline["side_load_from_s"] >= 0.75, "from the first moment after half of the time on"
        before = [moment for moment in moments if moment["at_s"] <= timeline["side_load_from_s"]]
        after = moments[len(before):]
        assert before and after, moments
        assert all(moment["side_load_cpu"] == 0 for moment in before), "before"
        assert all(moment["side_load_cpu"] > 0 for moment in after), "after"
        assert sum(moment["bytes_per_s"] for moment in moments) > 0, "events were built"
        assert all(moment["temperature_c"] == 48.5 for moment in moments), "temperature"
        assert all(moment["host_power_w"] == 213 for moment in moments), "power"
        assert all(moment["processor_power_w"] is None for moment in moments), "an energy that stands still is no power"
        rows = list(csv.DictReader((host.path / "t.csv").open()))
        assert [row["temperature_c"] for row in rows] == ["48.5"] * 5, "rows"
        assert [row["processor_power_w"] for row in rows] == ["NA"] * 5, "rows"
        drawn = xml.etree.ElementTree.parse(host.path / "t.svg").getroot()
        texts = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
        assert "side load" in texts and "temperature (Celsius)" in texts, texts
        assert "processors: not available" in texts, texts
        assert "coretemp Package id 0" in table, table


def test_sensors_that_are_absent_or_absurd_are_not_available():
    with Host() as host:
        timeline, table = measure(host)
        for key in ("temperature_c", "processor_power_w", "host_power_w"):
            assert not timeline["sensors"][key]["available"], key
            assert all(moment[key] is None for moment in timeline["moments"]), key
        assert "temperature_c: not available: no processor" in table, table
    with Host() as host:
        timeline, _ = measure(host.with_sensors(temperature=-273150, power=4294967295000000))
        for key in ("temperature_c", "processor_power_w", "host_power_w"):
            assert all(moment[key] is None for moment in timeline["moments"]), key


def test_a_moment_costs_few_system_calls():
    with Host() as host:
        timeline, _ = measure(host.with_sensors())
        # Of three processes, the processor times of the host and four sensors; at one a second far below 1 % of a core.
        assert timeline["sampling"]["reads_per_sample"] <= 60, timeline["sampling"]


def test_options_that_make_no_sense_are_refused():
    for more, said in ((["--csv", "x.csv"], "--csv: is about a course of time"), (["--side-load", "1"], "--side-load: is about"),
                       (["--every", "1ms"], "--every: from"), (["--every", "10s"], "--every: from"),
                       (["--every", "1s", "--side-load-from", "half"], '"half" is no share'),
                       (["--every", "1s", "--side-load-from", "120%"], '"120%" is no share'),
                       (["--every", "1s", "--csv", "/nowhere/x.csv"], "--csv /nowhere/x.csv")):
        done = fanin(*SHORT, *more)
        assert done.returncode == 2, more
        assert said in done.stderr, done.stderr
