// Nodes and sources of the run.
import { byId, element, nodeLink, once, setText, Table } from "./dom.js";
import * as format from "./format.js";
import { entries, isLive, page, shownRun } from "./page.js";

// A share as a bar, with its numbers as text.
function bar(cell, part, whole) {
  if (!cell.bar) {
    cell.bar = element("span", { class: "bar" }, element("span"));
    cell.value = element("span");
    cell.replaceChildren(cell.value, cell.bar);
  }
  const known = part !== undefined && whole > 0;
  setText(cell.value, known ? `${format.count(part)} of ${format.count(whole)}` : format.UNKNOWN);
  cell.bar.hidden = !known;
  if (!known) return;
  cell.bar.firstChild.style.width = `${Math.min(100, (100 * part) / whole)}%`;
  cell.dataset.mark = part / whole > 0.9 ? "warn" : "";
}

const ROLES = {
  event_manager: "event manager",
  readout: "readout unit",
  builder: "builder unit",
  filter: "filter unit",
};
export const roleOf = ({ role = "" }) => ROLES[role] ?? role;

function alive(cell, [, node]) {
  const state = node.alive === undefined ? "unknown" : node.alive ? "alive" : "gone";
  // A node that ended with its run is not missed.
  const quiet = state === "gone" && !isLive(page.status);
  const text = quiet ? "ended" : state;
  if (cell.shown === text) return;
  cell.shown = text;
  cell.replaceChildren(element("span", { class: "shape small", "data-state": quiet ? "halted" : state }), ` ${text}`);
}

export const NODE_COLUMNS = [
  {
    name: "Node",
    head: true,
    fill: once(
      ([name]) => name,
      ([name]) => nodeLink(name),
    ),
  },
  { name: "Role", text: ([, node]) => roleOf(node), tooltip: ([, node]) => node.configuration ?? "" },
  { name: "Host", text: ([, node]) => node.host ?? "" },
  { name: "State", fill: alive },
  {
    name: "Starts",
    number: true,
    text: ([, node]) => format.count(node.starts),
    mark: ([, node]) => (node.starts > 1 ? "warn" : ""),
    title: "How often it was started in this run",
  },
  { name: "CPU", number: true, text: ([, node]) => format.load(node.cpu), title: "Of one core" },
  { name: "Memory", number: true, text: ([, node]) => format.bytes(node.rss_bytes) },
  {
    name: "Buffers",
    number: true,
    title: "Pages in use",
    fill: (cell, [, node]) => bar(cell, node.pages_in_use, node.pages),
  },
  { name: "Events", number: true, text: ([, node]) => format.count(node.events) },
  { name: "Data", number: true, text: ([, node]) => format.bytes(node.bytes) },
  {
    name: "Throttled",
    number: true,
    title: "Time for which it had to wait for others",
    text: ([, node]) => format.si(node.throttled_s, "s"),
  },
];

// Of the readout unit of a source.
const wholeName = ({ configuration, readout }) => (configuration ? `${configuration}/${readout}` : readout);
const dropped = ({ dropped_by_reason }) =>
  entries(dropped_by_reason)
    .map(([reason, number]) => `${format.count(number)} ${reason}`)
    .join(", ");
const warn =
  (key) =>
  ([, source]) =>
    source[key] > 0 ? "warn" : "";

export const SOURCE_COLUMNS = [
  { name: "Source", head: true, text: ([name]) => name, tooltip: ([, source]) => source.configuration ?? "" },
  { name: "Id", number: true, text: ([, source]) => format.hexadecimal(source.id) },
  {
    name: "Readout",
    fill: once(
      ([, source]) => [source.configuration, source.readout],
      ([, source]) => (source.readout ? nodeLink(wholeName(source)) : ""),
    ),
  },
  { name: "Required", text: ([, source]) => (source.required === undefined ? "" : source.required ? "yes" : "no") },
  {
    name: "Mean size",
    number: true,
    text: ([, source]) => format.bytes(source.read > 0 ? source.bytes / source.read : undefined),
  },
  { name: "Read", number: true, text: ([, source]) => format.count(source.read) },
  { name: "Built", number: true, text: ([, source]) => format.count(source.built) },
  {
    name: "Missing",
    number: true,
    title: "Events without it",
    text: ([, source]) => format.count(source.missing),
    mark: warn("missing"),
  },
  { name: "Late", number: true, text: ([, source]) => format.count(source.late), mark: warn("late") },
  { name: "Lost", number: true, text: ([, source]) => format.count(source.lost), mark: warn("lost") },
  { name: "Dropped", number: true, text: ([, source]) => format.count(source.dropped), mark: warn("dropped") },
  { name: "Why dropped", wide: true, text: ([, source]) => dropped(source) },
];

let nodes;
let sources;

export function beginTables() {
  nodes = new Table(byId("nodes"), "Nodes", NODE_COLUMNS, "No nodes: configure first.");
  sources = new Table(byId("sources"), "Sources", SOURCE_COLUMNS, "No sources: configure first.");
}

const keyed = (object) => entries(object).map((entry) => [entry[0], entry]);

export function updateTables() {
  nodes.update(keyed(page.status.nodes));
  byId("nodes").classList.toggle("here", !entries(page.status.nodes).some(([, { host }]) => host));
  sources.update(keyed(shownRun().sources));
}

export function sourceTable(parent, object) {
  new Table(parent, "Sources", SOURCE_COLUMNS, "No sources are recorded.").update(keyed(object));
}
