// Where a prompt's KV lies now: each replica's part of it, from the prompt's beginning to its end.

import { h, section } from "./dom.js";
import { count, percent } from "./format.js";
import { legend } from "./bars.js";

const TIERS = [
  { css: "gpu", label: "GPU" },
  { css: "cpu", label: "CPU memory" },
  { css: "shared", label: "shared tier" },
  { css: "nowhere", label: "not there" },
];
const SHARED = "shared by all";

export function whereabouts(kv, home) {
  if (!kv || !kv.stretches) {
    const why = kv ? "Its last prompt was not read, or is shorter than a block."
      : "The router has not seen a turn of it since it started.";
    return section("Where its KV is", null, h("p", { class: "empty" }, why));
  }
  const note = `last prompt, ${count(kv.blocks)} blocks`;
  if (!kv.memories.length) {
    return section("Where its KV is", note,
      h("p", { class: "empty" }, "Nowhere any more: its next turn is computed anew."));
  }
  const byReplica = Map.groupBy(kv.memories, (memory) => memory.replica ?? SHARED);
  const rows = [...byReplica].map(([name, memories]) => row(name, memories, home));
  return section("Where its KV is", note, legend(TIERS),
    h("div", { class: "places" }, rows),
    h("div", { class: "ends", "aria-hidden": "true" },
      h("span", {}, "beginning of the prompt"), h("span", {}, "end")));
}

function row(name, memories, home) {
  const shares = memories.map((one) => h("span", { class: "share" },
    h("i", { class: `part ${one.tier}`, "aria-hidden": "true" }),
    `${one.tier === "shared" ? "shared" : one.tier.toUpperCase()} ${percent(one.held_ratio)}`));
  const stretches = [...memories[0].held].map((_, at) => memories.find((one) => one.held[at] === "x"));
  const cells = stretches.map((memory) => h("i", { class: `part ${memory?.tier ?? "nowhere"}` }));
  return h("div", { class: "place" },
    h("span", { class: "who" }, name, name === home ? h("em", {}, "home") : null),
    h("div", { class: "strip", "aria-hidden": "true" }, cells),
    h("span", { class: "shares" }, shares));
}
