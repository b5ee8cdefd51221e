// The pages of a past run and of a node, and the sampled event.
import { get, pathOf } from "./connection.js";
import { byId, dateOf, element, facts, nodeLink, setText, Table, timeOf } from "./dom.js";
import { commentOf, qualityOf } from "./edit.js";
import * as format from "./format.js";
import { Log } from "./log.js";
import { entries } from "./page.js";
import { LEDGER, openFragments } from "./progress.js";
import { verdictOf } from "./runs.js";
import { NODE_COLUMNS, roleOf, sourceTable } from "./tables.js";

const SAMPLE_QUESTIONS = 6;
const SAMPLE_PAUSE_MS = 500;

function panel(title, ...content) {
  return element("section", { class: "panel" }, element("h2", {}, title), ...content);
}

function numbers(rows) {
  const made = facts(rows);
  made.classList.add("numbers");
  return made;
}

const scroll = () => element("div", { class: "scroll" });

// Replaces `view`'s content by what `make` gives; the newest call wins.
async function show(view, title, make) {
  const mine = Symbol(title);
  view.loading = mine;
  const fresh = view.dataset.of !== title;
  view.dataset.of = title;
  if (fresh) view.replaceChildren(element("h1", {}, title), element("p", { class: "muted" }, "Loading"));
  let content;
  try {
    content = await make();
  } catch (error) {
    content = [element("p", { class: "notice bad" }, error.message)];
  }
  if (view.loading === mine) view.replaceChildren(element("h1", {}, title), ...content);
}

function transitionTable(transitions = []) {
  const place = scroll();
  new Table(
    place,
    "Transitions",
    [
      { name: "Time", fill: (cell, item) => cell.replaceChildren(timeOf(item.unix_ms)) },
      { name: "From", text: (item) => item.from ?? "" },
      { name: "To", text: (item) => item.to ?? "" },
      { name: "Command", text: (item) => item.command ?? "" },
      { name: "By", text: (item) => item.who ?? "" },
      { name: "Why", wide: true, text: (item) => item.why ?? "" },
    ],
    "No transitions are recorded: the run was not started by run control.",
  ).update(transitions.map((item, index) => [index, item]));
  return place;
}

function ledgerFacts(fragments = {}) {
  const open = openFragments(fragments);
  return numbers([
    ...LEDGER.map(([name]) => [name, format.count(fragments[name])]),
    [
      "balanced",
      open === undefined ? "not known" : open === 0 ? "yes" : `no, ${format.count(open)} fragments are missing`,
    ],
  ]);
}

function list(texts, empty) {
  if (!texts?.length) return element("p", { class: "muted" }, empty);
  return element("ul", { class: "plain" }, ...texts.map((text) => element("li", {}, element("code", {}, text))));
}

// Text of the server as a file: a link cannot send the token.
function saveAs(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  element("a", { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}

function configurationPanel(run, configurations = []) {
  const place = element("div");
  const load = async () => {
    try {
      const text = await get(`runs/${run}/configuration`);
      place.replaceChildren(
        element("button", { type: "button", click: () => saveAs(`run-${run}.toml`, text) }, "Save as a file"),
        element("pre", { tabindex: "0" }, text),
      );
    } catch (error) {
      place.replaceChildren(element("p", { class: "bad", role: "alert" }, error.message));
    }
  };
  place.append(element("button", { type: "button", click: load }, "Show what reproduces this run"));
  const rows = configurations.map(({ name, overrides = [] }) => [name, list(overrides, "nothing was changed")]);
  return panel("Configuration", facts(rows), place);
}

async function runLog(run) {
  const section = panel("Log");
  const log = new Log(section, "No lines are recorded.");
  try {
    const { lines = [] } = await get(`runs/${run}/log`);
    log.add(lines);
  } catch (error) {
    log.say(error.message);
  }
  return section;
}

function runFacts(run) {
  const { text, mark } = verdictOf(run);
  return facts([
    ["kind", run.kind],
    ["quality", qualityOf(run)],
    ["comment", commentOf(run)],
    ["by", run.who],
    ["host", run.host],
    ["began", run.begin_ms ? dateOf(run.begin_ms) : "never"],
    ["ended", run.end_ms ? dateOf(run.end_ms) : "not known"],
    ["duration", format.duration(run.duration_s > 0 ? run.duration_s * 1000 : undefined)],
    ["end", element("span", { class: mark }, text)],
    ["reason", run.end_ms ? run.reason : ""],
    ["id", element("code", {}, run.run_id ?? "")],
  ]);
}

export function showRun(number) {
  return show(byId("view-run"), `Run ${number}`, async () => {
    const [run, log] = await Promise.all([get(`runs/${number}`), runLog(number)]);
    const sources = scroll();
    sourceTable(sources, run.sources);
    const events = numbers(
      entries(run.events)
        .filter(([, value]) => typeof value === "number")
        .map(([name, value]) => [name, format.count(value)]),
    );
    const files = [...new Set([...(run.files ?? []), run.manifest])].filter(Boolean);
    return [
      element(
        "div",
        { class: "columns three" },
        panel("Run", runFacts(run)),
        panel("Events", events),
        panel("Ledger of fragments", ledgerFacts(run.fragments)),
      ),
      panel("Transitions", transitionTable(run.transitions)),
      panel("Sources", sources),
      panel("Files", list(files, "No files: the run stored nothing.")),
      configurationPanel(number, run.configurations),
      log,
    ];
  });
}

export function showNode(name) {
  return show(byId("view-node"), `Node ${name}`, async () => {
    const { role, configuration, keys, counters = {}, log: lines = [] } = await get(`nodes/${pathOf(name)}`);
    const rows = facts([
      ["role", roleOf({ role })],
      ["configuration", configuration],
    ]);
    const counted = scroll();
    const columns = NODE_COLUMNS.filter(({ name: head }) => head !== "Role" && head !== "Node");
    new Table(counted, "Counters", columns, "").update([[name, [name, counters]]]);
    const known = scroll();
    new Table(
      known,
      "Keys",
      [
        { name: "Key", head: true, text: ([key]) => key },
        { name: "Value", wide: true, text: ([, value]) => (typeof value === "string" ? value : JSON.stringify(value)) },
      ],
      "No keys.",
    ).update(entries(keys).map((entry) => [entry[0], entry]));
    const log = panel("Log");
    const view = new Log(log);
    view.add(lines);
    return [panel("Node", rows, counted), panel("Keys of its configuration", known), log];
  });
}

async function sample() {
  const place = byId("sample");
  let answer;
  // The first question subscribes: the first event comes a little later.
  for (let asked = 0; answer?.event === undefined; asked += 1) {
    if (asked === SAMPLE_QUESTIONS) return;
    if (asked) await new Promise((resolve) => setTimeout(resolve, SAMPLE_PAUSE_MS));
    try {
      answer = await get("sample");
    } catch (error) {
      place.replaceChildren(element("p", { class: "bad", role: "alert" }, error.message));
      return;
    }
    if (answer.event === undefined)
      place.replaceChildren(element("p", {}, format.capital(answer.why ?? "there is no event")));
  }
  const table = scroll();
  const spaced = (hex = "") => hex.replace(/(.{8})(?=.)/g, "$1 ");
  new Table(
    table,
    "Fragments",
    [
      { name: "Source", head: true, text: (item) => item.source ?? "" },
      {
        name: "Size",
        number: true,
        text: (item) => format.bytes(item.bytes),
        tooltip: (item) => `${format.count(item.bytes)} B`,
      },
      { name: "First bytes", fill: (cell, item) => cell.replaceChildren(element("code", {}, spaced(item.first))) },
    ],
    "The event has no fragments.",
  ).update((answer.fragments ?? []).map((item, index) => [index, item]));
  place.replaceChildren(
    element(
      "p",
      {},
      `Event ${format.count(answer.event)}, built by `,
      answer.builder ? nodeLink(answer.builder) : "a builder unit",
      ` at ${format.clock(Date.now())}`,
    ),
    table,
  );
}

export function beginDetails() {
  byId("sample-get").addEventListener("click", async (event) => {
    const button = event.currentTarget;
    button.disabled = true;
    await sample();
    button.disabled = false;
    setText(button, "Show another event");
  });
}
