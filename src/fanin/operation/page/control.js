// The commands: big buttons, why one is not allowed, and what configure and start take along.
import { post } from "./connection.js";
import { byId, element, setText, setTitle } from "./dom.js";
import { capital } from "./format.js";
import { isLive, page, whyNoChange } from "./page.js";

// Those that end something are sent without the version that was seen: they must not fail because
// the state has just changed.
const WITHOUT_VERSION = new Set(["stop", "abort", "halt"]);
const MEANING = {
  configure: "Starts the nodes of the chosen configuration.",
  start: "Begins a run.",
  stop: "Ends the run in order: all that was read is built and stored.",
  recover: "Leaves the state error.",
  halt: "Ends all nodes.",
  abort: "Ends the run at once. What is not built yet is lost, and counts as lost.",
};
const NEXT = { halted: "configure", configuring: "", configured: "start", error: "recover" };

const buttons = [...byId("buttons").children];
let sent = ""; // the command of which the answer is awaited
let version_to_come = 0; // commands that need a version wait until the stream has it
let shown; // the button whose line is shown
let aborted_run; // of the dialog
let configurations_shown = "";
let changes_shown = "";

// "": allowed now.
function whyNot(command) {
  const status = page.status;
  const why = whyNoChange();
  if (why) return why;
  const refused = status.commands?.[command] ?? "This run control does not have this command.";
  if (refused) return refused;
  if (WITHOUT_VERSION.has(command)) return "";
  if (!page.connected) return "There is no connection to run control.";
  if (sent || status.version < version_to_come) return "Run control is busy with the last command.";
  return "";
}

function nextCommand(status) {
  if (isLive(status)) return "stop";
  const next = NEXT[status?.state] ?? "";
  return next === "configure" && status.commands?.start === "" ? "start" : next;
}

const ended = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);
const sentence = (text) => ended(capital(text));

export function updateButtons() {
  const next = nextCommand(page.status);
  for (const button of buttons) {
    const { command } = button.dataset;
    const why = whyNot(command);
    // aria-disabled, since a keyboard must reach the button to learn why it is disabled.
    button.setAttribute("aria-disabled", why ? "true" : "false");
    button.classList.toggle("primary", command === next && !why);
    setTitle(button, sentence(why || MEANING[command]));
  }
  showReason();
}

function showReason() {
  const command = shown?.dataset.command;
  const why = command ? whyNot(command) : "";
  const name = shown?.textContent;
  setText(byId("reason"), !command ? "" : why ? `${name} is disabled: ${ended(why)}` : `${name}: ${MEANING[command]}`);
}

function answer(text, bad) {
  const line = byId("answer");
  setText(line, text);
  line.className = bad ? "bad" : "";
}

function lines(text, separator) {
  return text
    .split(separator)
    .map((part) => part.trim())
    .filter(Boolean);
}

// What the fields say, all of it: what is left out would stay as it was. Throws an Error with a
// sentence.
function options() {
  const duration = byId("duration").value.trim();
  const events = byId("events").value.trim();
  const without = lines(byId("without").value, /[\s,]+/);
  const set = lines(byId("set").value, "\n");
  if (events && !/^[1-9]\d*$/.test(events)) throw new Error("The number of events is a whole number, as 1000.");
  const wrong = set.find((line) => !line.includes("="));
  if (wrong) throw new Error(`\u201c${wrong}\u201d sets no key: write KEY=VALUE, one in a line.`);
  return { duration, events: events ? Number(events) : "", set, without };
}

function bodyOf(command) {
  const body = WITHOUT_VERSION.has(command) ? {} : { version: page.status.version };
  if (command !== "configure" && command !== "start") return body;
  Object.assign(body, options());
  const configuration = byId("configuration").value;
  // The same one again would only start all nodes anew.
  const other = configuration !== page.status.configuration || page.status.state === "halted";
  if (configuration && (command === "configure" || other)) body.configuration = configuration;
  if (command === "start") {
    body.comment = byId("comment").value.trim();
    body.kind = byId("kind").value;
  }
  return body;
}

async function send(command) {
  const name = capital(command);
  try {
    const body = bodyOf(command);
    sent = command;
    answer(`${name} was sent.`);
    updateButtons();
    const { version } = await post(command, body);
    if (!WITHOUT_VERSION.has(command)) version_to_come = version ?? 0;
    if (command === "start") byId("comment").value = ""; // it was of this run
    answer("");
  } catch (error) {
    answer(`${name} was not done: ${ended(error.message)}`, true);
  } finally {
    if (sent === command) sent = "";
    updateButtons();
  }
}

function press(button) {
  const { command } = button.dataset;
  shown = button;
  showReason();
  if (whyNot(command)) return;
  if (command === "abort") askAbort();
  else send(command);
}

function askAbort() {
  const { run } = page.status;
  aborted_run = run;
  setText(byId("confirm-title"), run ? `Abort run ${run}?` : "Abort?");
  setText(
    byId("confirm-text"),
    "The run ends at once. What is read and not built yet is lost, and counts as lost. " +
      "Stop ends the run in order, without a loss.",
  );
  byId("confirm").showModal();
}

export function updateControl() {
  const { status } = page;
  updateConfigurations(status);
  // An abort that was meant for this run must not reach the next one.
  const dialog = byId("confirm");
  if (dialog.open && (status.run !== aborted_run || whyNot("abort"))) {
    dialog.close();
    answer("Abort was not sent: the run has ended meanwhile.");
  }
  updateOptions(status);
  updateButtons();
}

// What was given last, here or by somebody else, holds until something else is given.
function updateOptions({ changes }) {
  const now = JSON.stringify(changes);
  if (!changes || now === changes_shown) return;
  changes_shown = now;
  byId("duration").value = changes.duration ?? "";
  byId("events").value = changes.events ?? "";
  byId("without").value = (changes.without ?? []).join(" ");
  byId("set").value = (changes.set ?? []).join("\n");
  countOptions();
}

function updateConfigurations({ configurations = [], configuration = "" }) {
  const now = JSON.stringify([configurations, configuration]);
  if (now === configurations_shown) return;
  configurations_shown = now;
  const select = byId("configuration");
  const names =
    configurations.includes(configuration) || !configuration ? configurations : [configuration, ...configurations];
  select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  if (configuration) select.value = configuration;
}

// A hidden option must not be forgotten.
function countOptions() {
  const set = ["duration", "events", "without", "set"].filter((id) => byId(id).value.trim());
  setText(byId("options-set"), set.length ? ` (${set.length} set)` : "");
}

// A new connection may be to a run control that counts its versions anew.
export function forgetVersion() {
  version_to_come = 0;
}

export function beginControl() {
  for (const button of buttons) {
    const show = () => {
      shown = button;
      showReason();
    };
    const hide = () => {
      shown = buttons.includes(document.activeElement) ? document.activeElement : undefined;
      showReason();
    };
    button.addEventListener("click", () => press(button));
    button.addEventListener("focus", show);
    button.addEventListener("mouseenter", show);
    button.addEventListener("blur", hide);
    button.addEventListener("mouseleave", hide);
  }
  const dialog = byId("confirm");
  byId("confirm-no").addEventListener("click", () => dialog.close());
  byId("confirm-yes").addEventListener("click", () => {
    dialog.close();
    send("abort");
  });
  byId("next").addEventListener("submit", (event) => event.preventDefault());
  byId("options").addEventListener("input", countOptions);
  countOptions(); // a browser may have kept them
}
