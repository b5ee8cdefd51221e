"""The page of run control in a browser: fanin serve, real event builders, and Chromium without a screen.

The pictures of the page are build/page/{light,dark,phone}.png. With FANIN_PICTURE=docs/pictures/run-control.png the first one
is also kept there, after a run that is long enough to draw its rates.
"""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from fanin_run import FANIN, LONGEST_S, SOURCE, Folder, Port, fanin, wait_until
from hosts_test import Hosts

try:
    from selenium import webdriver
    from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException, TimeoutException
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select, WebDriverWait
except ImportError:
    webdriver = None
pytestmark = pytest.mark.skipif(not (webdriver and shutil.which("chromium") and shutil.which("chromedriver")),
                                reason="chromium, chromium-driver or python3-selenium is not installed")

QUIET = (SOURCE / "examples/quiet.toml").read_text()
HOSTILE = '<img src=x onerror="document.title=1"><b>bold</b> & "quoted"'
PICTURES = SOURCE / "build/page"
PICTURE = os.environ.get("FANIN_PICTURE")
COMMANDS = ("configure", "start", "stop", "recover", "halt", "abort")


class Served(Folder):
    """A folder with a configuration and a `fanin serve` of it."""

    def __init__(self, *files, options=(), environment=None):
        self.files, self.options, self.environment = files, options, environment

    def __enter__(self):
        super().__enter__()
        self.registry = self.path / "runs.sqlite"
        self.files = self.files or [self.write("quiet.toml", QUIET)]
        self.log = (self.path / "serve.log").open("w")
        self.process = subprocess.Popen(
            [FANIN, "serve", *self.files, "--listen", "127.0.0.1:0", "--registry", self.registry, *self.options],
            cwd=self.path, env=self.environment, stdout=subprocess.PIPE, stderr=self.log, text=True)
        first = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", first)
        assert found, f"{first!r}: {(self.path / 'serve.log').read_text()}"
        self.address = found[0]
        self.tokens = dict(line.split() for line in (self.path / "runs.sqlite.control/tokens").read_text().splitlines()[1:])
        return self

    def __exit__(self, *exception):
        for _ in range(2):  # the second one aborts the run
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGINT)
                try:
                    self.process.wait(LONGEST_S / 4)
                except subprocess.TimeoutExpired:
                    pass
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()
        super().__exit__(*exception)

    def process_of(self, node):
        """Its number. The launcher is its parent, whose command line has no --node."""
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = entry.read_bytes().decode(errors="replace").split("\0")
            except OSError:  # it has ended
                continue
            if str(self.files[0]) in words and "--node" in words and node in words:
                return int(entry.parent.name)
        raise AssertionError(f"{node} is not there")

    def asked(self, *words):
        done = fanin("ctl", *words, "--json", "--registry", self.registry)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--lang=en"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
    yield made
    made.quit()


class Page:
    """The page of a run control in a browser."""

    def __init__(self, browser, served, role="operate", token=None):
        self.browser, self.served = browser, served
        self.size(1280, 900)
        browser.get(f"{served.address}#token={token or served.tokens[role]}")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.browser.get("about:blank")
        self.complaints()  # those of this page are of no interest to the next test

    def size(self, width, height, scheme="light"):
        command = self.browser.execute_cdp_cmd
        command("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500})
        command("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def find(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.find(selector).text

    def until(self, condition, what):
        not_there = (NoSuchElementException, StaleElementReferenceException)
        wait = WebDriverWait(self.browser, LONGEST_S * (2 if PICTURE else 0.5), 0.05, not_there)
        try:
            return wait.until(lambda _: condition())
        except TimeoutException:
            said = (self.served.path / "serve.log").read_text()
            raise AssertionError(f"not so: {what}\n{self.text('body')}\n{said}\n{self.complaints()}") from None

    def until_state(self, state):
        self.until(lambda: self.text("#state") == state, f"the state is {state}")

    def button(self, command):
        return self.find(f"[data-command={command}]")

    def press(self, command):
        self.until(lambda: self.button(command).get_attribute("aria-disabled") == "false", f"{command} is allowed")
        self.browser.execute_script("scrollTo(0, 0)")
        self.button(command).click()

    def start(self):
        self.press("start")
        self.until_state("Running")

    def stop(self):
        self.press("stop")
        self.until_state("Configured")

    def headed(self, selector, head, name):
        """The element of that selector of which the head, an element in it, has that text."""
        found = self.browser.execute_script(
            "const [selector, head, name] = arguments;"
            "return [...document.querySelectorAll(selector)].find((one) => one.querySelector(head)?.textContent === name);",
            selector, head, str(name))
        if found is None:
            raise NoSuchElementException(f"{selector} {name}")
        return found

    def row(self, table, name):
        return self.headed(f"{table} tbody tr", "th", name)

    def tile(self, name):
        return self.headed("#tiles > div", "dt", name).find_element(By.TAG_NAME, "dd").text

    def built(self):
        digits = re.sub(r"\D", "", self.tile("Events built"))
        return int(digits) if digits else 0

    def until_built(self, count):
        self.until(lambda: self.built() >= count, f"{count} events are built")

    def go(self, place):
        self.browser.execute_script("location.hash = arguments[0]", place)

    def complaints(self):
        """What the browser has found wrong: scripts, styles, answers."""
        return [line["message"] for line in self.browser.get_log("browser")]

    def picture(self, name):
        self.browser.execute_script("document.activeElement.blur()")
        webdriver.ActionChains(self.browser).move_to_element(self.find("header")).perform()  # not on a button
        PICTURES.mkdir(parents=True, exist_ok=True)
        assert self.browser.save_screenshot(str(PICTURES / f"{name}.png"))


def test_a_run_is_started_watched_and_stopped_and_a_node_that_dies_is_named(browser):
    with Served() as served, Page(browser, served) as page:
        page.until_state("Halted")
        assert served.tokens["operate"] not in page.browser.current_url
        page.start()
        page.until_built(200)
        assert "Stop" == page.text("#buttons .primary") and page.tile("Event rate").endswith("Hz")
        os.kill(served.process_of("bu1"), signal.SIGKILL)
        page.until(lambda: "bu1" in page.text("#notices"), "the page names the node that died")
        page.until_state("Running, degraded")
        page.until(lambda: "gone" in page.row("#nodes", "bu1").text and "alive" in page.row("#nodes", "bu0").text, "it is gone")
        page.until(lambda: "bu1 died: killed by signal 9" in page.text("#log"), "the log says why")
        page.until_built(page.built() + 200)
        page.find("#sample-get").click()
        page.until(lambda: len(page.all("#sample tbody tr")) == 4, "an event is shown with its fragments")
        page.stop()
        page.until(lambda: "Balanced" in page.text("#ledger-note"), "the ledger of the run is shown")
        assert "Run 1" == page.text("#run-title") and "ended: stopped" in page.text("#run-facts")
        read, built = (re.sub(r"\D", "", page.row("#ledger", row).find_element(By.TAG_NAME, "td").text) for row in ("read", "built"))
        assert int(read) >= 1000, read
        page.go("runs")
        page.until(lambda: "in order" in page.row("#view-runs", 1).text, "the run is in the list")
        events = served.asked("runs")["runs"][-1]["events"]["built"]
        assert f"{events:,}".replace(",", "\u202f") in page.row("#view-runs", 1).text
        page.row("#view-runs", 1).find_element(By.TAG_NAME, "a").click()
        page.until(lambda: "draining" in page.text("#view-run"), "its transitions")
        page.until(lambda: "run000001.manifest.json" in page.text("#view-run"), "its files")
        assert page.complaints() == []


def test_options_hold_until_they_are_changed(browser):
    with Served() as served, Page(browser, served) as page:
        page.find("#options summary").click()
        page.find("#events").send_keys("20")
        page.find("#without").send_keys("0x100")
        page.press("start")
        page.until(lambda: "ended: run.events" in page.text("#run-facts"), "the run ends by itself")
        page.until_state("Configured")
        page.browser.refresh()
        page.until(lambda: page.find("#events").get_attribute("value") == "20", "they are still shown")
        page.find("#options summary").click()
        page.find("#events").clear()
        page.find("#without").clear()
        page.start()
        page.until(lambda: page.row("#sources", "0x100"), "the source is there again")
        page.until_built(50)
        page.stop()
        page.find("#duration").send_keys("10")
        page.press("start")
        page.until(lambda: "unit" in page.text("#answer"), "what is wrong is said")


def test_a_comment_with_html_is_text(browser):
    with Served() as served, Page(browser, served) as page:
        page.find("#comment").send_keys(HOSTILE)
        page.start()
        page.until(lambda: HOSTILE in page.text("#run-facts"), "the comment is shown")
        page.stop()
        page.go("runs")
        page.until(lambda: HOSTILE in page.row("#view-runs", 1).text, "also in the list")
        page.row("#view-runs", 1).find_element(By.TAG_NAME, "button").click()
        field = page.browser.switch_to.active_element
        field.send_keys(Keys.END, HOSTILE, Keys.ENTER)
        page.until(lambda: HOSTILE * 2 in page.row("#view-runs", 1).text, "it is changed")
        Select(page.row("#view-runs", 1).find_element(By.TAG_NAME, "select")).select_by_value("bad")
        wait_until(lambda: served.asked("runs")["runs"][-1]["quality"] == "bad", "the quality is kept")
        assert served.asked("runs")["runs"][-1]["comment"] == HOSTILE * 2
        page.go("run/1")
        page.until(lambda: HOSTILE * 2 in page.text("#view-run"), "and where the run is shown")
        assert not page.all("main img, main b:not(.log b)"), "it makes no elements"
        assert "fanin" in page.browser.title and page.complaints() == []


def test_who_has_no_token_is_asked_for_one_and_who_may_only_look_has_no_buttons(browser):
    with Served() as served, Page(browser, served, token="0" * 48) as page:
        page.until(lambda: "refused" in page.text("#token-why"), "a wrong token is refused")
        page.find("#token").send_keys(served.tokens["view"], Keys.ENTER)
        page.until_state("Halted")
        page.until(lambda: all(page.button(command).get_attribute("aria-disabled") == "true" for command in COMMANDS), "no button")
        assert all("may only look" in page.button(command).get_attribute("title") for command in COMMANDS)
        page.button("start").click()
        page.until(lambda: page.text("#reason").startswith("Start is disabled: This token may only look"), "the reason")
        served.asked("start")
        page.until_built(100)
        assert all(page.button(command).get_attribute("aria-disabled") == "true" for command in COMMANDS), "also while a run lives"
        page.browser.get(f"{served.address}#token={served.tokens['operate']}")
        page.stop()


def test_two_stages_are_started_and_stopped_from_the_page(browser):
    with Folder() as folder, Port() as a, Port() as b, Port() as c, Port() as d:
        ports = dict(zip(("7600", "7601", "7700", "7701"), (a, b, c, d)))
        files = []
        for example in sorted((SOURCE / "examples/two-stage").glob("*.toml")):
            text = re.sub(r"127\.0\.0\.1:(\d+)", lambda found: f"127.0.0.1:{ports[found[1]].number}", example.read_text())
            files.append(folder.write(example.name, text.replace('duration = "10s"', 'duration = "10min"')))
        with Served(*files) as served, Page(browser, served) as page:
            page.start()
            page.until_built(500)
            assert "alive" in page.row("#nodes", "group0/bu1").text and "alive" in page.row("#nodes", "slice1/evm").text
            page.go("node/" + "group0%2Fbu1")
            page.until(lambda: "storage.sink" in page.text("#view-node"), "a node of a group")
            page.go("control")
            page.stop()
            page.until(lambda: "Balanced" in page.text("#ledger-note"), "the ledger of both stages")
            assert page.built() >= 500 and page.complaints() == []


def test_a_run_on_a_list_of_hosts_is_started_and_stopped_from_the_page(browser):
    with Hosts() as hosts:
        options = ("--hosts", hosts.list)
        with Served(hosts.path / "run.toml", options=options, environment=hosts.environment) as served, Page(browser, served) as page:
            page.start()
            page.until_built(500)
            assert "alive" in page.row("#nodes", "bu1").text
            page.stop()
            page.until(lambda: "Balanced" in page.text("#ledger-note"), "the ledger of the run is shown")


def test_the_keyboard_alone_starts_and_stops(browser):
    with Served() as served, Page(browser, served) as page:
        page.until_state("Halted")

        def focused():
            return page.browser.switch_to.active_element

        def tab_to(command, key=Keys.TAB):
            for _ in range(60):
                if focused().get_attribute("data-command") == command:
                    return
                focused().send_keys(key)
            raise AssertionError(f"{command} is not reached")

        tab_to("start")
        page.until(lambda: page.text("#reason") == "Start: Begins a run.", "what the button means is said")
        assert page.browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
        focused().send_keys(Keys.ENTER)
        page.until_state("Running")
        tab_to("abort")
        focused().send_keys(Keys.ENTER)
        page.until(lambda: focused().get_attribute("id") == "confirm-no", "to abort is asked about")
        focused().send_keys(Keys.ESCAPE)
        page.until(lambda: focused().get_attribute("data-command") == "abort", "where it was before")
        tab_to("stop", Keys.SHIFT + Keys.TAB)
        focused().send_keys(Keys.SPACE)
        page.until_state("Configured")
        assert served.asked("status")["last_run"]["reason"] == "stopped"


def test_the_page_fits_a_screen_and_a_telephone_light_and_dark(browser):
    with Served() as served, Page(browser, served) as page:
        page.find("#comment").send_keys("cosmics, threshold 12 mV")
        page.start()
        page.until_built(100_000 if PICTURE else 1500)
        page.until(lambda: len(page.all("#charts canvas")) == 4, "the charts are drawn")
        for name, width, height, scheme in (("light", 1280, 1000, "light"), ("dark", 1280, 1000, "dark"), ("phone", 390, 844, "light")):
            page.size(width, height, scheme)
            for place in ("runs", "run/1", "node/bu1", "control"):
                page.go(place)
                page.until(lambda: any(view.is_displayed() for view in page.all(f"#view-{place.split('/')[0]}")), place)
                assert page.browser.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0, (name, place)
            page.until(lambda: page.find("#charts canvas").size["width"] > width / 4, "the charts are as wide as the page")
            page.picture(name)
        assert page.complaints() == []
        if PICTURE:
            shutil.copy(PICTURES / "light.png", SOURCE / PICTURE)
