// Numbers, sizes and times as people read them. What is not known is a dash.

export const UNKNOWN = "\u2013";
const NARROW_SPACE = "\u202f"; // between groups of digits, and before a unit
const LARGE = ["", "k", "M", "G", "T", "P"];
const SMALL = ["", "m", "\u00b5", "n"];

const known = (value) => typeof value === "number" && Number.isFinite(value);

// 1234567 as "1 234 567".
export function count(value) {
  if (!known(value)) return UNKNOWN;
  return Math.round(value)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, NARROW_SPACE);
}

// Three digits and an SI prefix: 19870 Hz as "19.9 kHz".
export function si(value, unit) {
  if (!known(value)) return UNKNOWN;
  let scaled = Math.abs(value);
  let prefix = "";
  if (scaled >= 999.5) {
    let step = 0;
    while (scaled >= 999.5 && step < LARGE.length - 1) {
      scaled /= 1000;
      step += 1;
    }
    prefix = LARGE[step];
  } else if (scaled > 0 && scaled < 1 && unit === "s") {
    let step = 0;
    while (scaled < 0.9995 && step < SMALL.length - 1) {
      scaled *= 1000;
      step += 1;
    }
    prefix = SMALL[step];
  }
  const whole = prefix === "" && Number.isInteger(scaled);
  const digits = whole || scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
  return `${value < 0 ? "-" : ""}${scaled.toFixed(digits)}${NARROW_SPACE}${prefix}${unit}`;
}

export const bytes = (value) => si(value, "B");
export const byteRate = (value) => si(value, "B/s");
export const rate = (value) => si(value, "Hz");
export const microseconds = (value) => si(known(value) ? value / 1e6 : value, "s");

// Never "0 %" of something that is not nothing, and never "100 %" of what is not all.
export function percent(part, whole) {
  if (!known(part) || !known(whole) || whole <= 0) return UNKNOWN;
  const share = (100 * part) / whole;
  if (part > 0 && share < 0.01) return `<0.01${NARROW_SPACE}%`;
  const digits = share >= 99.995 || share === 0 ? 0 : 2;
  const text = part < whole && share >= 99.995 ? ">99.99" : share.toFixed(digits);
  return `${text}${NARROW_SPACE}%`;
}

// Of something of which more than one may be busy: 1.53 as "153 %".
export const load = (value) => (known(value) ? `${Math.round(100 * value)}${NARROW_SPACE}%` : UNKNOWN);

const two = (value) => String(value).padStart(2, "0");

// h:mm:ss, from a day on with days.
export function duration(ms) {
  if (!known(ms)) return UNKNOWN;
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const days = Math.floor(seconds / 86400);
  const rest = `${Math.floor((seconds % 86400) / 3600)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
  return days > 0 ? `${days}${NARROW_SPACE}d ${rest}` : rest;
}

// Local time; with the date if it is not that of `now_ms`.
export function clock(ms, now_ms = Date.now()) {
  if (!known(ms) || ms <= 0) return UNKNOWN;
  const time = new Date(ms);
  const text = `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
  return time.toDateString() === new Date(now_ms).toDateString() ? text : `${day(time)} ${text}`;
}

export function date(ms) {
  if (!known(ms) || ms <= 0) return UNKNOWN;
  const time = new Date(ms);
  return `${day(time)} ${two(time.getHours())}:${two(time.getMinutes())}`;
}

const day = (time) => `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;

export function utc(ms) {
  if (!known(ms) || ms <= 0) return "";
  return `${new Date(ms).toISOString().replace("T", " ").replace("Z", "")} UTC`;
}

export const hexadecimal = (value) => (known(value) ? `0x${value.toString(16)}` : UNKNOWN);

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
