// The list of past runs.
import { get } from "./connection.js";
import { byId, dateOf, element, once, runLink, setText, Table } from "./dom.js";
import { commentOf, qualityOf } from "./edit.js";
import * as format from "./format.js";
import { page } from "./page.js";

const PAGE_SIZE = 50;

// Whether a run is in order, as {text, mark}.
export function verdictOf({ ok, balanced, begin_ms, end_ms, run }) {
  if (!end_ms && run !== page.status?.run) return { text: "end not known", mark: "warn" };
  if (!end_ms) return { text: begin_ms ? "runs now" : "not started yet", mark: "" };
  if (!begin_ms) return { text: "never started", mark: "" };
  if (balanced === false) return { text: "not balanced", mark: "bad" };
  if (ok === false) return { text: "failed", mark: "bad" };
  return ok ? { text: "in order", mark: "" } : { text: format.UNKNOWN, mark: "" };
}

// Does not touch what somebody edits.
function unlessEdited(fill) {
  return (cell, item) => {
    if (!cell.querySelector("[data-editing]")) fill(cell, item);
  };
}

const role = () => page.status?.role;
let runs = new Map();
let complete = false; // there are no older ones

const COLUMNS = [
  {
    name: "Run",
    head: true,
    fill: once(
      (run) => run.run,
      (run) => runLink(run.run),
    ),
  },
  { name: "Kind", text: (run) => run.kind ?? "" },
  {
    name: "Began",
    fill: once(
      (run) => run.begin_ms,
      (run) => dateOf(run.begin_ms),
    ),
  },
  {
    name: "Duration",
    number: true,
    text: (run) => format.duration(run.duration_s > 0 ? run.duration_s * 1000 : undefined),
  },
  { name: "Events", number: true, text: (run) => format.count(run.events?.built) },
  {
    name: "Incomplete",
    number: true,
    text: (run) => format.count(run.events?.incomplete),
    mark: (run) => (run.events?.incomplete > 0 ? "warn" : ""),
  },
  { name: "End", text: (run) => verdictOf(run).text, mark: (run) => verdictOf(run).mark },
  { name: "Reason", wide: true, text: (run) => (run.end_ms ? (run.reason ?? "") : "") },
  { name: "By", text: (run) => run.who ?? "" },
  {
    name: "Quality",
    fill: once(
      (run) => [run.run, run.quality, role()],
      (run) => qualityOf(run, remember(run)),
    ),
  },
  {
    name: "Comment",
    wide: true,
    fill: unlessEdited(
      once(
        (run) => [run.run, run.comment, role()],
        (run) => commentOf(run, remember(run)),
      ),
    ),
  },
];

const remember =
  ({ run }) =>
  (key, value) => {
    const held = runs.get(run);
    if (held) held[key] = value;
  };

let table;
let kind;
let quality;
let problem;
let older;

export function beginRuns() {
  const again = () => loadRuns(true);
  kind = element(
    "select",
    { change: again },
    ...["", "physics", "test"].map((name) => element("option", { value: name }, name || "all kinds")),
  );
  quality = element(
    "select",
    { change: again },
    ...["", "good", "bad", "unknown"].map((name) =>
      element("option", { value: name }, name ? `quality ${name}` : "all qualities"),
    ),
  );
  problem = element("p", { class: "bad", role: "alert" });
  older = element("button", { type: "button", click: loadOlder }, "Show older runs");
  const place = element("div", {});
  byId("view-runs").append(
    element(
      "div",
      { class: "line" },
      element("h1", {}, "Past runs"),
      element("label", {}, element("span", { class: "unseen" }, "Kind"), kind),
      element("label", {}, element("span", { class: "unseen" }, "Quality"), quality),
    ),
    problem,
    place,
    older,
  );
  place.className = "scroll values";
  table = new Table(place, "Past runs", COLUMNS, "No such runs.");
}

async function load(before) {
  const query = new URLSearchParams({ last: PAGE_SIZE });
  if (before !== undefined) query.set("before", before);
  if (kind.value) query.set("kind", kind.value);
  if (quality.value) query.set("quality", quality.value);
  try {
    const { runs: got = [] } = await get(`runs?${query}`);
    setText(problem, "");
    return got;
  } catch (error) {
    setText(problem, error.message);
    return undefined;
  }
}

function draw() {
  const sorted = [...runs.values()].sort((a, b) => b.run - a.run);
  table.update(sorted.map((run) => [run.run, run]));
  older.hidden = complete || runs.size === 0;
}

// `anew`: with another filter; else the newest ones are brought up to date.
export async function loadRuns(anew = false) {
  const asked = kind.value + quality.value;
  const got = await load();
  if (!got || asked !== kind.value + quality.value) return;
  if (anew || runs.size === 0) {
    runs = new Map();
    complete = got.length < PAGE_SIZE;
  }
  for (const run of got) runs.set(run.run, run);
  draw();
}

async function loadOlder() {
  const got = await load(Math.min(...runs.keys()));
  if (!got) return;
  for (const run of got) runs.set(run.run, run);
  complete = got.length < PAGE_SIZE;
  draw();
}
