// How sessions and turns stand, in words.

import { h } from "./dom.js";
import { seconds } from "./format.js";

/** What is said of turns that ended otherwise than with an answer. */
export const FAILURES = {
  failed: "failed",
  aborted: "aborted by its client or a time limit",
  lost: "lost with its replica or gateway",
  refused: "turned away: too many sessions ran",
};

/** What stands for a time that is not over. */
export function running() {
  return h("span", { class: "running" }, "runs");
}

/** What stands for a time that has not begun. */
export function waiting() {
  return h("span", { class: "waiting" }, "waits");
}

/** How a turn stands, in one word. */
export function standing(state) {
  return { runs: running, waits: waiting }[state]?.() ?? state;
}

/** A turn's time to the first token, or how it stands without one. */
export function firstToken({ ttft_s: actual, state }) {
  return actual !== null || state === "answered" ? seconds(actual) : standing(state);
}
