// The replicas: how busy each is, what its memories hold, and how even the load is.

import { ask } from "./api.js";
import { bar, legend } from "./bars.js";
import { facts, h, link, place, redraw, say, section } from "./dom.js";
import { ago, count, few, percent } from "./format.js";

const GPU = [
  { css: "pinned", label: "in use by requests" },
  { css: "gpu", label: "GPU, cached" },
];
const CPU = { css: "cpu", label: "CPU memory, cached" };
const HEADS = [["name", "Replica"], ["state", "State"], ["number", "Run"], ["number", "Wait"],
  ["number most", "At most"], ["bar", "GPU memory"], ["bar", "CPU memory"],
  ["number", "Resident sessions"], ["number booked", "Tokens to prefill"],
  ["number rate", "Prefill tokens/s"]];

export function replicasPage() {
  const refused = h("p", { class: "trouble", role: "alert", hidden: true });
  const body = h("div");

  async function refresh(signal) {
    const told = await ask("replicas", signal);
    const error = told.router && told.settings_error;
    say(refused, error ? `New settings are refused: ${error}` : null);
    redraw(body, about(told), evenness(told), table(told.replicas));
  }

  const heading = h("h1", { class: "hidden" }, "Replicas");
  return { title: "Replicas", element: h("article", {}, heading, refused, body), refresh };
}

function about({ router, replicas }) {
  if (!router) return h("p", { class: "empty" }, "The router has not told yet how it stands.");
  const wish = router.autoscaling;
  return facts([
    ["Replicas", `${count(replicas.length)}, ${count(router.synced_replicas)} in sync`],
    ["Requests", few(replicas.reduce((sum, one) => sum + one.requests, 0))],
    ["Waiting at the router", count(router.waiting)],
    ["Sessions that run", router.session_limit === null ? null
      : `${count(router.running_sessions)}, of ${count(router.session_limit)} that may`],
    ["Sessions", link(place("sessions"), count(router.sessions))],
    ["Blocks known", count(router.blocks)],
    ["Blocks in the shared tier", count(router.shared_blocks)],
    ["Router up for", ago(router.started_s_ago)],
    ["Autoscaling", wish && `wants ${count(wish.replicas)}: ${wish.reason}`],
  ]);
}

function evenness({ dispersion_ratio: ratio, replicas }) {
  if (replicas.length < 2) return []; // one alone is neither even nor uneven
  const random = 1 - 1 / replicas.length; // on average, where each request falls at random
  const most = 2 * random; // the gauge ends here
  const at = (value) => ({ left: `${(100 * Math.min(value, most)) / most}%` });
  const digits = (value) => value.toFixed(2);
  const words = !replicas.some((one) => one.requests) ? "nothing runs"
    : digits(ratio) === digits(random) ? "as even as if requests fell at random"
      : ratio < random ? "more even than if requests fell at random"
        : "less even than if requests fell at random";
  const told = `${digits(ratio)}: ${words}`;
  return section("Dispersion of running requests", "variance by mean",
    h("div", { class: "gauge", role: "img", "aria-label": told },
      h("b", { class: "needle", style: at(ratio) }), h("i", { style: at(random) })),
    h("div", { class: "ends", "aria-hidden": "true" }, h("span", {}, "0 even"),
      h("span", {}, `${digits(random)} at random`), h("span", {}, `${digits(most)}+ uneven`)),
    h("p", { class: "reason" }, h("b", {}, digits(ratio)), ` ${words}`));
}

function table(replicas) {
  if (!replicas.length) return h("p", { class: "empty" }, "No replica reports.");
  const head = h("tr", {}, HEADS.map(([kind, label]) => h("th", { scope: "col", class: kind }, label)));
  return section("Load and memory", null, legend([...GPU, CPU]),
    h("table", { class: "replicas" }, h("thead", {}, head), h("tbody", {}, replicas.map(row))));
}

function row(one) {
  const pinned = Math.min(one.pinned_blocks, one.total_blocks);
  const kept = Math.max(0, Math.min(one.gpu_blocks, one.total_blocks) - pinned);
  const gpu = GPU.map((kind, at) => ({ ...kind, value: [pinned, kept][at] }));
  const used = (pinned + kept) / one.total_blocks;
  const here = `${place("sessions")}?replica=${encodeURIComponent(one.replica)}`;
  const told = [link(here, one.replica), states(one), count(one.running), count(one.waiting),
    count(one.max_requests), [bar(gpu, one.total_blocks, count), h("small", {}, percent(used))],
    inCpu(one), few(one.resident_sessions), count(one.booked_uncached_tokens), count(one.prefill_tokens_per_s)];
  return h("tr", {}, HEADS.map(([kind, label], at) => (at
    ? h("td", { class: kind, "data-label": label }, told[at])
    : h("th", { scope: "row", class: kind }, told[at]))));
}

/** How large it is, a replica learns from what it first takes from there. */
function inCpu({ cpu_blocks: blocks, cpu_total_blocks: total }) {
  if (!total) return blocks ? `${count(blocks)} blocks, size not known yet` : "none";
  return [bar([{ ...CPU, value: blocks }], total, count), h("small", {}, percent(blocks / total))];
}

function states({ synced, draining }) {
  const told = [];
  if (draining) told.push(h("span", { class: "chip warn" }, "drains"));
  if (!synced) told.push(h("span", { class: "chip warn" }, "not in sync"));
  return told.length ? told : h("span", { class: "chip" }, "in sync");
}
