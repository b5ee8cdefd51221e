// Server-sent events, of a text that comes in pieces. EventSource cannot send a token, so the page
// reads the stream itself.

export class EventParser {
  constructor() {
    this.rest = "";
    this.clear();
  }

  clear() {
    this.name = "message";
    this.id = undefined;
    this.data = [];
  }

  // The events that are complete now: {name, id, data}; `id` is undefined if it has none.
  push(text) {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop();
    const events = [];
    for (const line of lines) {
      const event = this.take(line.endsWith("\r") ? line.slice(0, -1) : line);
      if (event) events.push(event);
    }
    return events;
  }

  take(line) {
    if (line === "") {
      const event = { name: this.name, id: this.id, data: this.data.join("\n") };
      const complete = this.data.length > 0;
      this.clear();
      return complete ? event : undefined;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon); // "": a comment
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.name = value;
    else if (field === "id") this.id = value;
    else if (field === "data") this.data.push(value);
    return undefined;
  }
}
