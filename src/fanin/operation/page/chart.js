// Event rate and throughput over the last hour.
import { get } from "./connection.js";
import { byId, element, setText } from "./dom.js";
import { byteRate, clock, rate, UNKNOWN } from "./format.js";
import { isLive, page, serverNow } from "./page.js";

const POINTS_MAX = 3600;
const GAP_MS = 3500; // a line is not drawn over a longer time without values
const HISTORY_EVERY_MS = 60000; // it has what a hidden tab has missed

const two = (value) => String(value).padStart(2, "0");
const hours = (time) => `${two(time.getHours())}:${two(time.getMinutes())}`;
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

class Chart {
  constructor(title, lines, format) {
    this.lines = lines; // {key, label, color, dashes}
    this.format = format;
    this.points = []; // [Date, value of each line]
    this.now = element("p", { class: "now" });
    this.place = element("div", { class: "chart", role: "img" });
    this.title = title;
    this.box = element("figure", {}, element("figcaption", {}, title, this.now), this.place);
  }

  set(points) {
    this.points = points.slice(-POINTS_MAX);
  }

  add(time_ms, values) {
    const last_ms = this.points.at(-1)?.[0].getTime() ?? 0;
    if (time_ms <= last_ms) return;
    if (last_ms && time_ms - last_ms > GAP_MS) this.points.push([new Date(last_ms + 1), ...values.map(() => null)]);
    this.points.push([new Date(time_ms), ...values]);
    if (this.points.length > POINTS_MAX) this.points.splice(0, this.points.length - POINTS_MAX);
  }

  draw(span_ms) {
    if (!this.place.clientWidth) return; // of a view that is not shown
    const now_ms = serverNow();
    const file = this.points.length ? this.points : [[new Date(now_ms), ...this.lines.map(() => null)]];
    const changing = { file, dateWindow: [now_ms - span_ms, now_ms], valueRange: [0, this.top(now_ms - span_ms)] };
    if (this.graph) {
      // The library follows the window, also to nothing while the view is hidden.
      if (this.graph.size().width !== this.place.clientWidth) this.graph.resize();
      this.graph.updateOptions(changing);
    } else this.graph = new Dygraph(this.place, file, { ...this.look(), ...changing });
    this.describe(now_ms - span_ms);
  }

  // Space above the largest value that is shown; never an axis without a length.
  top(from_ms) {
    let largest = 0;
    for (const [time, ...values] of this.points) {
      if (time.getTime() >= from_ms) largest = Math.max(largest, ...values.map((value) => value ?? 0));
    }
    return largest > 0 ? largest * 1.15 : 1;
  }

  look() {
    return {
      labels: ["time", ...this.lines.map(({ label }) => label)],
      series: Object.fromEntries(
        this.lines.map(({ label, name, dashes }) => [label, { color: color(name), strokePattern: dashes ?? null }]),
      ),
      // No zoom by dragging: on a telephone this scrolls the page.
      interactionModel: {},
      strokeWidth: 1.6,
      fillAlpha: 0.1,
      fillGraph: this.lines.length === 1,
      gridLineColor: color("--grid"),
      axisLineColor: color("--line"),
      highlightCircleSize: 3,
      height: 170,
      axes: {
        x: { axisLabelFormatter: hours, pixelsPerLabel: 70, drawGrid: false },
        y: {
          axisLabelFormatter: (value) => this.format(value).replace(/\.0+(?!\d)/, ""),
          axisLabelWidth: 66,
          pixelsPerLabel: 34,
        },
      },
      highlightCallback: (event, x, points) =>
        this.say(
          x,
          points.map(({ yval }) => yval),
        ),
      unhighlightCallback: () => this.sayNewest(),
    };
  }

  recolor() {
    this.graph?.updateOptions(this.look());
  }

  say(time_ms, values) {
    const parts = this.lines.map(
      ({ label }, index) =>
        `${this.lines.length > 1 ? `${label} ` : ""}${values[index] == null ? UNKNOWN : this.format(values[index])}`,
    );
    setText(this.now, `${clock(time_ms)}  ${parts.join(", ")}`);
  }

  sayNewest() {
    const newest = this.points.at(-1);
    if (newest) this.say(newest[0].getTime(), newest.slice(1));
  }

  describe(from_ms) {
    if (!this.graph.getSelection || this.graph.getSelection() < 0) this.sayNewest();
    const values = this.points
      .filter(([time, value]) => time.getTime() >= from_ms && value !== null)
      .map((point) => point[1]);
    const [least, most] = [Math.min(...values), Math.max(...values)].map(this.format);
    const said = values.length ? `now ${this.format(values.at(-1))}, from ${least} to ${most}` : "no values";
    this.place.setAttribute("aria-label", `${this.title}: ${said}`);
  }
}

const charts = [
  new Chart(
    "Event rate",
    [
      { label: "built", name: "--line-1" },
      { label: "incomplete", name: "--line-2", dashes: [5, 3] },
    ],
    rate,
  ),
  new Chart("Throughput", [{ label: "throughput", name: "--line-1" }], byteRate),
];
let span_ms;

const hasLibrary = () => typeof Dygraph !== "undefined";

export function drawCharts() {
  if (!hasLibrary()) {
    setText(byId("charts"), "The library for charts did not load; everything else works.");
    return;
  }
  for (const chart of charts) chart.draw(span_ms);
}

export async function loadHistory() {
  let answer;
  try {
    answer = await get("history");
  } catch {
    return; // the banner says what is wrong; values of the stream are drawn
  }
  const { begin_ms, step_s = 1, series = {} } = answer;
  const {
    event_rate_hz: events = [],
    throughput_bytes_per_s: bytes = [],
    incomplete_rate_hz: incomplete = [],
  } = series;
  const time = (index) => new Date(begin_ms + index * step_s * 1000);
  charts[0].set(events.map((value, index) => [time(index), value, incomplete[index] ?? null]));
  charts[1].set(bytes.map((value, index) => [time(index), value]));
  drawCharts();
}

export function updateCharts() {
  const { status } = page;
  if (!isLive(status)) return;
  const now_ms = serverNow();
  charts[0].add(now_ms, [status.event_rate_hz ?? null, status.incomplete_rate_hz ?? null]);
  charts[1].add(now_ms, [status.throughput_bytes_per_s ?? null]);
  drawCharts();
}

export function beginCharts() {
  // The library's legend sets style attributes, which the policy of the page forbids; ours is above.
  if (hasLibrary()) Dygraph.PLUGINS = Dygraph.PLUGINS.filter((plugin) => plugin !== Dygraph.Plugins.Legend);
  byId("charts").replaceChildren(...charts.map(({ box }) => box));
  const buttons = [...byId("spans").children];
  const choose = (minutes) => {
    span_ms = minutes * 60000;
    for (const button of buttons)
      button.setAttribute("aria-pressed", String(Number(button.dataset.minutes) === minutes));
    drawCharts();
  };
  for (const button of buttons) button.addEventListener("click", () => choose(Number(button.dataset.minutes)));
  choose(5);
  setInterval(() => {
    if (page.connected && !isLive(page.status)) drawCharts();
  }, 5000); // time goes on
  setInterval(() => {
    if (page.connected && !document.hidden) loadHistory();
  }, HISTORY_EVERY_MS);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    charts.forEach((chart) => chart.recolor()),
  );
}
