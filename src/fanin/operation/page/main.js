// Run control in a browser: takes the stream of events, and gives it to the parts of the page.
import { get, setToken, Stream, takeToken, token, whenTokenIsRefused } from "./connection.js";
import { beginControl, forgetVersion, updateButtons, updateControl } from "./control.js";
import { beginCharts, drawCharts, loadHistory, updateCharts } from "./chart.js";
import { beginDetails, showNode, showRun } from "./details.js";
import { byId, setText, setTitle } from "./dom.js";
import { clock, utc } from "./format.js";
import { Log } from "./log.js";
import { page } from "./page.js";
import { beginProgress, updateProgress } from "./progress.js";
import { beginRuns, loadRuns } from "./runs.js";
import { beginTables, updateTables } from "./tables.js";

const VIEWS = ["token", "control", "runs", "run", "node"];
const LOG_LINES = 500;
let log;
let view = "";
let subject; // of the view: a run or a node
let last_asked = "";
let runs_seen = ""; // what the list of runs depends on

function show(name) {
  for (const other of VIEWS) byId(`view-${other}`).hidden = other !== name;
  for (const link of document.querySelectorAll("[data-nav]")) {
    const here = link.dataset.nav === name || (link.dataset.nav === "runs" && name === "run");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  view = name;
}

function route() {
  if (takeToken()) stream.open();
  if (!token()) {
    show("token");
    return;
  }
  const [, place, rest] = /^#?([a-z]*)\/?(.*)$/.exec(location.hash) ?? [];
  subject = undefined;
  if (place === "runs") {
    show("runs");
    loadRuns();
  } else if (place === "run" && /^\d+$/.test(rest)) {
    subject = Number(rest);
    show("run");
    showRun(subject);
  } else if (place === "node" && rest) {
    subject = decodeURIComponent(rest);
    show("node");
    showNode(subject);
  } else {
    show("control");
    drawCharts();
    log.settle();
  }
  scrollTo(0, 0);
}

// Past runs change when one begins or ends.
function updateRuns() {
  const { run, last_run, role, state } = page.status;
  const now = JSON.stringify([run, last_run, role, state]);
  if (now === runs_seen) return;
  runs_seen = now;
  if (view === "runs") loadRuns();
  if (
    view === "run" &&
    (run === subject || last_run?.run === subject) &&
    !byId("view-run").querySelector("[data-editing]")
  )
    showRun(subject);
}

// A run that has ended is recorded soon, not at once.
async function loadLast({ last_run, state }) {
  const known = `${last_run?.run} ${state}`;
  if (!last_run || last_run.run === page.last?.run || known === last_asked) return;
  last_asked = known;
  try {
    const run = await get(`runs/${last_run.run}`);
    if (!run.end_ms) last_asked = "";
    else if (run.run === page.status.last_run?.run) page.last = run;
  } catch {
    return; // the numbers of the status are shown
  }
  updateProgress();
  updateTables();
}

function takeStatus(status) {
  // What we may do is said once, where a stream begins and does not continue.
  page.status = { role: page.status?.role, ...status };
  updateControl();
  updateProgress();
  updateTables();
  updateCharts();
  updateRuns();
  loadLast(status);
}

async function loadLog() {
  try {
    const { lines = [] } = await get(`log?last=${LOG_LINES}`);
    log.add(lines);
  } catch {
    /* the banner says what is wrong */
  }
}

const stream = new Stream({
  connected(clock_offset_ms) {
    page.connected = true;
    page.clock_offset_ms = clock_offset_ms;
    forgetVersion();
    document.body.classList.remove("lost");
    byId("banner").hidden = true;
    if (view === "token") route();
    loadHistory();
    loadLog();
    if (view === "runs") loadRuns();
  },
  event(name, data) {
    if (name === "status") takeStatus(data);
    else if (name === "log") log.add([data]);
  },
  lost({ since_ms, retry_ms, why }) {
    page.connected = false;
    document.body.classList.add("lost");
    byId("banner").hidden = false;
    setText(
      byId("banner-text"),
      `No connection to run control since ${clock(since_ms)}; the run itself is not affected.` + (why ? ` ${why}` : ""),
    );
    setTitle(byId("banner-text"), utc(since_ms));
    setText(
      byId("banner-retry"),
      retry_ms < 1500 ? "Trying again." : `Trying again in ${Math.round(retry_ms / 1000)} s.`,
    );
    updateButtons();
  },
});

whenTokenIsRefused(() => {
  setToken("");
  stream.close();
  setText(
    byId("token-why"),
    "Run control has refused the token. Open the address that fanin serve has printed, " +
      "or enter the part of it after #token=.",
  );
  show("token");
  byId("token").focus();
});

beginControl();
beginProgress();
beginTables();
beginCharts();
beginRuns();
beginDetails();
log = new Log(byId("log"));

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(
    byId("token")
      .value.trim()
      .replace(/^.*#token=/, ""),
  );
  byId("token").value = "";
  stream.open();
  route();
});
byId("banner-now").addEventListener("click", () => stream.retryNow());
addEventListener("hashchange", route);
const begins_with_token = location.hash.startsWith("#token=");
route();
if (token() && !begins_with_token) stream.open();
