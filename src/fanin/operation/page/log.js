// Lines of a log. The list follows its end until somebody scrolls up.
import { element, setText, timeOf } from "./dom.js";

const LEVELS = ["debug", "info", "warning", "error"];
const NAMES = { debug: "all", info: "all but debug", warning: "warnings and errors", error: "errors only" };
const LINES_MAX = 2000;

const levelOf = ({ level }) => (LEVELS.includes(level) ? level : "info");
const keyOf = ({ unix_ms, node, level, text }) => JSON.stringify([unix_ms, node, level, text]);

// Recorded lines begin with the name of their node, padded to a column.
function textOf({ node = "", text = "" }) {
  const [, name, rest] = (!node && /^(\S+) {2,}(.*)$/s.exec(text)) || [];
  return rest === undefined ? [node, text] : [name, rest];
}

function row(line) {
  const level = levelOf(line);
  const [node, text] = textOf(line);
  return element(
    "li",
    { "data-level": level },
    timeOf(line.unix_ms),
    element("b", {}, level),
    element("i", {}, node),
    element("span", {}, text),
  );
}

export class Log {
  constructor(parent, empty = "No lines yet.") {
    this.lines = [];
    this.keys = new Set();
    this.list = element("ol", {
      class: "log",
      tabindex: "0",
      "aria-label": "Lines of the log",
      scroll: () => this.look(),
    });
    this.filter = element(
      "select",
      { change: () => this.choose() },
      ...LEVELS.map((level) => element("option", { value: level }, NAMES[level])),
    );
    this.filter.value = "info";
    this.to_end = element("button", { type: "button", hidden: true, click: () => this.follow() }, "Go to the end");
    this.none = element("p", { class: "muted" });
    this.empty = empty;
    parent.append(
      element("div", { class: "line" }, element("label", {}, "Show ", this.filter), this.to_end),
      this.list,
      this.none,
    );
    this.following = true;
    new ResizeObserver(() => this.settle()).observe(this.list);
    this.choose();
  }

  choose() {
    this.list.dataset.least = this.filter.value;
    this.settle();
  }

  // Lines that are there already are left out: after a lost connection some come twice.
  add(lines) {
    const fresh = [];
    for (const line of lines) {
      const key = keyOf(line);
      if (this.keys.has(key)) continue;
      this.keys.add(key);
      fresh.push(line);
    }
    if (!fresh.length) return;
    const last_ms = this.lines.at(-1)?.unix_ms ?? 0;
    this.lines.push(...fresh);
    if (fresh.some(({ unix_ms }) => unix_ms < last_ms)) {
      this.lines.sort((a, b) => a.unix_ms - b.unix_ms);
      this.list.replaceChildren(...this.lines.map(row));
    } else {
      this.list.append(...fresh.map(row));
    }
    while (this.lines.length > LINES_MAX) {
      this.keys.delete(keyOf(this.lines.shift()));
      this.list.firstChild.remove();
    }
    this.settle();
  }

  settle() {
    const least = LEVELS.indexOf(this.filter.value);
    const some = this.lines.some((line) => LEVELS.indexOf(levelOf(line)) >= least);
    setText(this.none, this.lines.length ? "No lines of these levels." : this.empty);
    this.none.hidden = some;
    this.list.hidden = !some;
    if (this.following) this.list.scrollTop = this.list.scrollHeight;
    this.width = this.list.clientWidth;
  }

  look() {
    const { scrollTop, scrollHeight, clientHeight, clientWidth } = this.list;
    if (!clientHeight || clientWidth !== this.width) return; // not shown, or not scrolled by a user
    this.following = scrollHeight - scrollTop - clientHeight < 8;
    this.to_end.hidden = this.following;
  }

  follow() {
    this.following = true;
    this.to_end.hidden = true;
    this.settle();
    this.list.focus({ preventScroll: true });
  }

  say(text) {
    this.empty = text;
    this.settle();
  }
}
