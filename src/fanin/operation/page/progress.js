// What the run does: its state, what is wrong, its numbers, its ledger.
import { byId, element, nodeLink, runLink, setText, setTitle, Table, timeOf } from "./dom.js";
import * as format from "./format.js";
import { entries, isLive, page, serverNow, shownRun } from "./page.js";

const stateName = (state) => (state ? format.capital(state) : "No state yet");

let ledger_table;
let notices_shown = "";
let facts_shown = "";
let announced = "";
const tiles = new Map();

export function beginProgress() {
  ledger_table = new Table(
    byId("ledger"),
    "Ledger of fragments",
    [
      { name: "Fragments", head: true, text: ([name]) => name, tooltip: ([, , , meaning]) => meaning },
      {
        name: "Number",
        number: true,
        text: ([, value]) => format.count(value),
        mark: ([name, value]) => ((name === "lost" || name === "dropped") && value > 0 ? "warn" : ""),
      },
      { name: "Share", number: true, text: ([, value, read]) => format.percent(value, read) },
    ],
    "No run yet.",
  );
  setInterval(updateTimes, 1000);
}

// Nodes come and go also while a run starts and ends.
function goneNodes(status) {
  return status.state === "running"
    ? entries(status.nodes)
        .filter(([, node]) => node.alive === false)
        .map(([name]) => name)
    : [];
}

export function updateProgress() {
  const { status } = page;
  const gone = goneNodes(status);
  // A node that is gone has an alarm, too.
  const troubles =
    Math.max(status.alarms?.length ?? 0, status.degraded || gone.length ? 1 : 0) + (status.state === "error" ? 1 : 0);
  updateState(status, troubles, gone);
  updateNotices(status, gone);
  updateRun(status);
  updateTiles(shownRun());
  updateLedger(shownRun());
}

function updateState(status, troubles, gone) {
  const name = stateName(status.state);
  const degraded = status.degraded || gone.length > 0;
  for (const id of ["shape", "top-shape"]) byId(id).dataset.state = status.state ?? "";
  byId("state").className = degraded ? "warn" : "";
  setText(byId("state"), degraded ? `${name}, degraded` : name);
  const run = isLive(status) && status.run ? `, run ${status.run}` : "";
  setText(byId("top-state"), name);
  setText(byId("top-run"), run);
  byId("top-alarms").hidden = troubles === 0;
  setText(byId("top-alarms"), `${troubles} ${troubles === 1 ? "alarm" : "alarms"}`);
  document.title = `${troubles ? `(${troubles}) ` : ""}${name}${run} \u2013 fanin`;
  announce(`${name}${degraded ? ", degraded" : ""}${run}`);
}

// For screen readers, once for each change.
function announce(text) {
  if (text === announced) return;
  announced = text;
  setText(byId("announce"), text);
}

function notice(kind, title, ...content) {
  return element("div", { class: `notice ${kind}` }, element("strong", {}, title), element("span", {}, ...content));
}

function updateNotices(status, gone) {
  const { state, error, vetoed, alarms = [], waiting_for, degraded } = status;
  const now = JSON.stringify([state, error, vetoed, alarms, waiting_for, degraded, gone]);
  if (now === notices_shown) return;
  notices_shown = now;
  const rows = [];
  if (error) rows.push(notice("bad", "Error", error));
  if (vetoed) rows.push(notice("bad", "Refused", vetoed));
  if (degraded || gone.length) {
    const names = gone.flatMap((name, index) => [index ? ", " : "", nodeLink(name)]);
    rows.push(
      notice("warn", "Degraded", "The run continues without ", ...(gone.length ? names : ["one of its nodes"]), "."),
    );
  }
  for (const alarm of alarms) rows.push(notice("warn", "Alarm", alarm));
  if (waiting_for && state !== "configured") rows.push(notice("wait", "Waiting", `for ${waiting_for}`));
  byId("notices").replaceChildren(...rows);
}

function updateRun(status) {
  const live = isLive(status);
  const { run, kind, who, comment, begun_ms, configuration, last_run } = status;
  const now = JSON.stringify([live, run, kind, who, comment, begun_ms, configuration, last_run]);
  if (now === facts_shown) return;
  facts_shown = now;
  const title = byId("run-title");
  const shown = live ? run : (last_run?.run ?? 0);
  if (shown) title.replaceChildren("Run ", runLink(shown));
  else setText(title, "Run");
  const parts = [];
  const add = (...content) => parts.push(element("span", {}, ...content));
  if (live) {
    add([kind, configuration].filter(Boolean).join(", "));
    if (who) add("by ", who);
    if (begun_ms) add("since ", timeOf(begun_ms));
    if (comment) add("\u201c", element("span", { class: "said" }, comment), "\u201d");
  } else if (last_run) {
    add(`ended: ${last_run.reason || "reason not known"}`);
    add(last_run.ok ? "in order" : element("strong", { class: "bad" }, "not in order"));
  } else {
    add("No run yet.");
  }
  byId("run-facts").replaceChildren(...parts);
  updateTimes();
}

// The times that go on between two events of the stream.
function updateTimes() {
  const { status } = page;
  if (!status || !page.connected) return;
  const { since_ms, begun_ms } = status;
  if (since_ms) {
    const now = serverNow();
    setText(byId("since"), `since ${format.clock(since_ms)}, for ${format.duration(now - since_ms)}`);
    setTitle(byId("since"), format.utc(since_ms));
  }
  const ended = shownRun();
  if (ended !== status) tile("Run time", format.duration(ended.begin_ms ? 1000 * ended.duration_s : undefined));
  else if (isLive(status) && begun_ms) tile("Run time", format.duration(serverNow() - begun_ms), format.utc(begun_ms));
}

function tile(name, value, title = "", mark = "") {
  let row = tiles.get(name);
  if (!row) {
    row = { value: element("dd"), box: element("div") };
    row.box.append(element("dt", {}, name), row.value);
    tiles.set(name, row);
    byId("tiles").append(row.box);
  }
  setText(row.value, value);
  setTitle(row.box, title);
  row.box.dataset.mark = mark;
}

// Of the run that is under way, or of the one that has ended.
function updateTiles(status) {
  const { events = {}, latency_us: latency = {} } = status;
  const bad = (value) => (value > 0 ? "warn" : "");
  if (!tiles.size) tile("Run time", format.UNKNOWN);
  tile("Events built", format.count(events.built), "with the incomplete ones");
  const over = status === page.last ? "over the whole run" : "over the last second";
  tile("Event rate", format.rate(status.event_rate_hz), over);
  tile("Throughput", format.byteRate(status.throughput_bytes_per_s), `payload of built events, ${over}`);
  tile("Data built", format.bytes(status.bytes_built), `${format.count(status.bytes_built)} B`);
  tile("Incomplete", format.count(events.incomplete), "events that lack a fragment", bad(events.incomplete));
  tile("Lost", format.count(events.lost), "events that were not built", bad(events.lost));
  tile("Damaged", format.count(events.bad), "events with a damaged fragment", bad(events.bad));
  tile("Rejected", format.count(events.rejected), "by the filter");
  const meaning = "from the trigger to the commit; so many of the events are not slower";
  tile("Latency, 50 %", format.microseconds(latency.p50), meaning);
  tile("Latency, 99 %", format.microseconds(latency.p99), meaning);
  tile("Latency, 99.9 %", format.microseconds(latency.p999), meaning);
}

export const LEDGER = [
  ["read", "from the sources"],
  ["built", "into events"],
  ["late", "came after their source was given up at that event"],
  ["dropped", "refused with a reason"],
  ["lost", "their readout unit died, or the run ended at once"],
];

// What is read and not accounted for; undefined: not known.
export function openFragments({ read, built, late, dropped, lost }) {
  const open = read - built - late - dropped - lost;
  return Number.isFinite(open) ? open : undefined;
}

function updateLedger(status) {
  const { fragments = {} } = status;
  const rows = LEDGER.map(([name, meaning]) => [name, [name, fragments[name], fragments.read, meaning]]);
  const open = openFragments(fragments);
  const none = fragments.read === undefined || (fragments.read === 0 && !isLive(status) && status !== page.last);
  ledger_table.update(none ? [] : rows);
  const note =
    none || open === undefined
      ? ""
      : open === 0
        ? "Balanced: read = built + late + dropped + lost."
        : isLive(status)
          ? `${format.count(open)} are under way: read, and not built yet.`
          : `Not balanced: ${format.count(open)} fragments are in no row. Look at the log of the run.`;
  setText(byId("ledger-note"), note);
  byId("ledger-note").classList.toggle("bad", open !== undefined && open !== 0 && !isLive(status));
}
