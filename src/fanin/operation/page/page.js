// What all parts of the page share: the last status, and what follows from it.

export const page = {
  status: undefined, // as run control sent it
  last: undefined, // the run that ended last, as it was recorded
  connected: false,
  clock_offset_ms: 0, // the clock of run control minus ours
};

export const serverNow = () => Date.now() + page.clock_offset_ms;

const LIVE = new Set(["starting", "running", "draining"]);
export const isLive = (status) => LIVE.has(status?.state);

// "": may change things; else why not.
export function whyNoChange() {
  if (!page.status) return "The state is not known yet.";
  if (page.status.role !== "operate")
    return "This token may only look (role \u201cview\u201d). Ask for one that may operate.";
  return "";
}

export const entries = (object) => Object.entries(object ?? {});

// The run whose numbers are shown: after its end those that were recorded, also when the next one is configured.
export function shownRun() {
  const { status, last } = page;
  const ended = !isLive(status) && last !== undefined && last.run === status.last_run?.run;
  return ended ? last : status;
}
