// Makes and updates elements. Text is set as text and never as HTML: names, comments and log lines
// come from users and may contain anything.
import { clock, date, utc } from "./format.js";

export const byId = (id) => document.getElementById(id);

// element("a", {href: "#runs", class: "more"}, "Runs"). Functions listen: {click: () => ...}.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== undefined));
  return made;
}

// Writes only what differs, so that a selection and a screen reader are not disturbed each second.
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

export function setTitle(target, text) {
  if (target.title !== text) target.title = text;
}

// A time of day, with the date if it is another day's; the title has UTC.
export const timeOf = (ms) => element("time", { title: utc(ms) }, clock(ms));
export const dateOf = (ms) => element("time", { title: utc(ms) }, date(ms));

export const nodeLink = (name) => element("a", { href: `#node/${encodeURIComponent(name)}` }, name);
export const runLink = (run) => element("a", { href: `#run/${run}` }, String(run));

// A name and its value for each row.
export function facts(rows) {
  const list = element("dl", { class: "facts" });
  for (const [name, value] of rows) {
    if (value === undefined || value === "") continue;
    list.append(element("dt", {}, name), element("dd", {}, value));
  }
  return list;
}

// A table whose rows have keys and stay where they are when values change.
// A column: {name, title, number, fill(cell, item), text(item), tooltip(item), mark(item)}, of which
// `fill` does all by itself; `mark` gives a class.
export class Table {
  constructor(parent, label, columns, empty) {
    this.columns = columns;
    this.rows = new Map();
    const heads = columns.map(({ name, title, number }) =>
      element("th", { scope: "col", title, class: number ? "number" : undefined }, name),
    );
    this.body = element("tbody");
    this.empty = element("p", { class: "muted" }, empty);
    this.table = element(
      "table",
      { "aria-label": label },
      element("thead", {}, element("tr", {}, ...heads)),
      this.body,
    );
    parent.replaceChildren(this.table, this.empty);
    parent.tabIndex = 0; // a keyboard can scroll it
    parent.setAttribute("role", "region");
    parent.setAttribute("aria-label", label);
    this.update([]);
  }

  // `items`: [key, item] in the order of the rows.
  update(items) {
    this.table.hidden = items.length === 0;
    this.empty.hidden = items.length > 0;
    const kept = new Set(items.map(([key]) => key));
    for (const [key, row] of this.rows) {
      if (kept.has(key)) continue;
      row.remove();
      this.rows.delete(key);
    }
    items.forEach(([key, item], place) => {
      const row = this.rows.get(key) ?? this.newRow(key);
      if (this.body.children[place] !== row) this.body.insertBefore(row, this.body.children[place]);
      this.columns.forEach((column, index) => this.fill(row.children[index], column, item));
    });
  }

  newRow(key) {
    const cells = this.columns.map(({ number, head, wide }) => {
      const classes = [number && "number", wide && "text"].filter(Boolean).join(" ");
      return head ? element("th", { scope: "row" }) : element("td", { class: classes || undefined });
    });
    const row = element("tr", {}, ...cells);
    this.rows.set(key, row);
    return row;
  }

  fill(cell, column, item) {
    if (column.fill) {
      column.fill(cell, item);
      return;
    }
    setText(cell, column.text(item));
    if (column.tooltip) setTitle(cell, column.tooltip(item));
    if (column.mark) cell.dataset.mark = column.mark(item);
  }
}

// Fills a cell with `make(item)` once, and again when `value(item)` has changed.
export function once(value, make) {
  return (cell, item) => {
    const now = JSON.stringify(value(item)) ?? "";
    if (cell.filled === now) return;
    cell.filled = now;
    cell.replaceChildren(make(item));
  };
}
