// Bars of parts. Each part has a colour, a pattern and a name, so that no cue is colour alone.

import { h } from "./dom.js";
import { count, seconds } from "./format.js";

/** What became of a prompt's tokens, in the order in which a prompt has them. */
export const TOKENS = [
  { name: "gpu_hit_tokens", css: "gpu", label: "GPU hit" },
  { name: "cpu_hit_tokens", css: "cpu", label: "CPU hit" },
  { name: "shared_hit_tokens", css: "shared", label: "shared hit" },
  { name: "elsewhere_tokens", css: "elsewhere", label: "cached elsewhere" },
  { name: "evicted_tokens", css: "evicted", label: "evicted" },
  { name: "first_seen_tokens", css: "first", label: "first seen" },
];

const UNKNOWN = { css: "unknown", label: "not known" };

/** A bar of {css, label, value} as wide as `whole` is to their sum; `say` tells a value. */
export function bar(parts, whole, say, ...more) {
  const some = parts.filter((part) => part.value > 0);
  const told = some.map((part) => `${part.label} ${say(part.value)}`).join(", ") || "nothing";
  const pieces = some.map((part) => h("span", {
    class: `part ${part.css}`, style: { width: `${(100 * part.value) / whole}%` } }));
  return h("div", { class: "stack", role: "img", "aria-label": told, title: told }, pieces, more);
}

/** The parts of a prompt; of one that runs, or was counted otherwise, only its length is known. */
export function promptParts(tokens, promptTokens) {
  if (!tokens) return [{ ...UNKNOWN, value: promptTokens }];
  return TOKENS.map((kind) => ({ ...kind, value: tokens[kind.name] }));
}

/** What each look means. */
export function legend(kinds) {
  const entries = kinds.map(({ css, label }) =>
    h("li", {}, h("span", { class: `part ${css}`, "aria-hidden": "true" }), label));
  return h("ul", { class: "legend" }, entries);
}

/** A time as it was, with a mark where it was expected. */
export function against(actual, expected, most) {
  const told = `${seconds(actual)}, expected ${seconds(expected)}`;
  const share = (value) => `${Math.min(100, (100 * value) / most)}%`;
  return h("div", { class: "against", role: "img", "aria-label": told, title: told },
    actual === null ? null : h("span", { class: "part time", style: { width: share(actual) } }),
    expected === null ? null : h("i", { style: { left: share(expected) } }));
}

/** The tokens of a prompt as one bar over the whole width, with numbers beneath. */
export function promptBar(tokens, promptTokens) {
  const parts = promptParts(tokens, promptTokens).filter((part) => part.value > 0);
  const entries = parts.map(({ css, label, value }) => h("li", {},
    h("span", { class: `part ${css}`, "aria-hidden": "true" }), `${label} `,
    h("b", {}, count(value))));
  return [bar(parts, promptTokens, count), h("ul", { class: "legend" }, entries)];
}

/** Which share of a turn's prompt was cached; null while that is not known. */
export function cachedRatio({ cached_tokens: cached, prompt_tokens: tokens }) {
  return cached === null || !tokens ? null : Math.min(1, cached / tokens);
}
