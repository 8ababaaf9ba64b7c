// Numbers, times and names as people read them.

const MINUTE_S = 60;
const HOUR_S = 3600;
const DAY_S = 86400;

export const NONE = "–";

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const oneDigit = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** A whole number: tokens, blocks, turns. */
export function count(number) {
  return isKnown(number) ? grouped.format(number) : NONE;
}

/** A number of a few, with a digit where it isn't whole. */
export function few(number) {
  return isKnown(number) ? oneDigit.format(number) : NONE;
}

/** A duration, to three digits at most. */
export function seconds(value) {
  if (!isKnown(value)) return NONE;
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size >= 100) return `${grouped.format(value)} s`;
  if (size >= 10) return `${value.toFixed(1)} s`;
  return size >= 0.1 ? `${value.toFixed(2)} s` : `${(value * 1000).toFixed(0)} ms`;
}

/** A share. */
export function percent(ratio) {
  return isKnown(ratio) ? `${Math.round(ratio * 100)} %` : NONE;
}

/** How long ago something was. */
export function ago(value) {
  if (!isKnown(value)) return NONE;
  if (value < 1) return "now";
  if (value < MINUTE_S) return `${Math.floor(value)} s`;
  if (value < HOUR_S) return `${Math.floor(value / MINUTE_S)} min`;
  return value < DAY_S ? `${Math.floor(value / HOUR_S)} h` : `${Math.floor(value / DAY_S)} d`;
}

/** The time of day of a date in ISO form, here. */
export function clock(iso) {
  return iso ? new Date(iso).toLocaleTimeString("en-GB") : NONE;
}

/** A date and time in ISO form, here. */
export function moment(iso) {
  return iso ? new Date(iso).toLocaleString("en-GB") : NONE;
}

/** A name of ours, such as kv_locality, as words. */
export function words(name) {
  return name.replaceAll("_", " ").replace(/^kv\b/, "KV");
}

function isKnown(number) {
  return number !== null && number !== undefined;
}
