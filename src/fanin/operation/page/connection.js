// Calls to run control, and the stream of its events.
import { EventParser } from "./sse.js";

const API = "/api/v1/";
const TOKEN = "fanin.token"; // in sessionStorage: it ends with the tab
const CALL_TIMEOUT_MS = 20000;
const SILENCE_MAX_MS = 30000; // comments keep the stream alive: one that is silent for longer is dead
const PAUSES_MS = [500, 1000, 2000, 4000, 8000, 15000];

// The address that `fanin serve` prints ends with #token=HEX. True: there was one.
export function takeToken() {
  const given = /^#token=([^&]+)/.exec(location.hash);
  if (!given) return false;
  setToken(decodeURIComponent(given[1]));
  history.replaceState(null, "", location.pathname + location.search);
  return true;
}

export const token = () => sessionStorage.getItem(TOKEN) ?? "";
export const setToken = (value) => sessionStorage.setItem(TOKEN, value);

// An answer that is no success; `message` is a sentence for the user.
export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status; // 0: no answer
  }
}

let on_refused_token = () => {};
export function whenTokenIsRefused(handler) {
  on_refused_token = handler;
}

async function sentenceOf(response) {
  try {
    const { error } = await response.json();
    if (error) return error;
  } catch {
    /* no JSON: a proxy, perhaps */
  }
  return `Run control answered with status ${response.status}`;
}

// What run control does not know is null there, and absent here.
function parsed(text) {
  return JSON.parse(text, function (key, value) {
    return value === null && !Array.isArray(this) ? undefined : value;
  });
}

// Gives the parsed answer (text if it is no JSON). Throws Refused.
export async function call(method, path, body) {
  const headers = { Authorization: `Bearer ${token()}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(API + path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      signal: AbortSignal.timeout(CALL_TIMEOUT_MS),
    });
  } catch {
    throw new Refused(
      method === "GET"
        ? "There was no answer of run control."
        : "There was no answer of run control. It is not known whether the command arrived: look at the state first.",
      0,
    );
  }
  if (response.status === 401) on_refused_token();
  if (!response.ok) throw new Refused(await sentenceOf(response), response.status);
  try {
    const json = (response.headers.get("Content-Type") ?? "").includes("json");
    const text = await response.text();
    return json ? parsed(text) : text;
  } catch {
    throw new Refused("The answer of run control ended too early.", 0);
  }
}

export const get = (path) => call("GET", path);
export const post = (path, body) => call("POST", path, body);

// Of a node, whose name may have a slash.
export const pathOf = (name) => name.split("/").map(encodeURIComponent).join("/");

// Holds the stream of events, and connects again when it is lost. Handlers: connected(clock_offset_ms),
// event(name, data), lost({since_ms, retry_ms, why}).
export class Stream {
  constructor(handlers) {
    this.handlers = handlers;
    this.failures = 0;
    this.last_id = undefined;
    this.last_byte_ms = Date.now();
    this.reading = false;
    this.run = 0; // counts connections: one that is given up no longer speaks
    addEventListener("online", () => this.retryNow());
    setInterval(() => this.checkSilence(), 5000);
  }

  // Begins anew, with the token that is stored now: the first status says what it allows.
  open() {
    this.last_id = undefined;
    this.reconnect();
  }

  reconnect() {
    this.close();
    this.connect(this.run);
  }

  close() {
    this.run += 1;
    clearTimeout(this.timer);
    this.timer = undefined;
    this.abort?.abort();
    this.abort = undefined;
    this.reading = false;
  }

  retryNow() {
    if (this.timer !== undefined) this.reconnect();
  }

  checkSilence() {
    if (this.reading && Date.now() - this.last_byte_ms > SILENCE_MAX_MS) this.abort.abort();
  }

  async connect(run) {
    this.timer = undefined;
    this.abort = new AbortController();
    if (this.failures === 0) this.last_byte_ms = Date.now();
    const started_ms = Date.now();
    let why = "";
    try {
      const response = await this.request();
      if (run !== this.run) return;
      if (response.status === 401) {
        this.close();
        on_refused_token();
        return;
      }
      if (response.ok) await this.read(response, run, started_ms);
      else why = await sentenceOf(response);
    } catch {
      /* the connection was lost, or given up */
    }
    if (run === this.run) this.again(why);
  }

  request() {
    const headers = { Authorization: `Bearer ${token()}`, Accept: "text/event-stream" };
    if (this.last_id !== undefined) headers["Last-Event-ID"] = this.last_id;
    const connecting = this.abort;
    const timer = setTimeout(() => connecting.abort(), CALL_TIMEOUT_MS);
    return fetch(`${API}events`, { headers, cache: "no-store", signal: connecting.signal }).finally(() =>
      clearTimeout(timer),
    );
  }

  async read(response, run, started_ms) {
    const parser = new EventParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    this.failures = 0;
    this.last_byte_ms = Date.now();
    this.reading = true;
    this.handlers.connected(clockOffset(response, started_ms));
    for (;;) {
      const { value, done } = await reader.read();
      if (done || run !== this.run) return;
      this.last_byte_ms = Date.now();
      for (const { name, id, data } of parser.push(value)) {
        if (id !== undefined) this.last_id = id;
        this.give(name, data);
      }
    }
  }

  // An error of who listens is no loss of the connection.
  give(name, data) {
    try {
      this.handlers.event(name, parsed(data));
    } catch (error) {
      reportError(error);
    }
  }

  again(why) {
    this.abort = undefined;
    this.reading = false;
    const pause = PAUSES_MS[Math.min(this.failures, PAUSES_MS.length - 1)];
    const retry_ms = Math.round(pause * (0.8 + 0.4 * Math.random())); // many pages do not come at once
    this.failures += 1;
    this.timer = setTimeout(() => this.connect(this.run), retry_ms);
    this.handlers.lost({ since_ms: this.last_byte_ms, retry_ms, why });
  }
}

// How far the clock of run control is ahead of ours. The header has whole seconds: less is not known.
function clockOffset(response, started_ms) {
  const there_ms = Date.parse(response.headers.get("Date") ?? "");
  const offset_ms = there_ms + 500 - (started_ms + Date.now()) / 2;
  return Math.abs(offset_ms) > 2000 ? offset_ms : 0;
}
