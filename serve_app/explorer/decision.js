// One decision: what each replica would have cost, which was chosen and why, and what came of it.

import { against, bar, legend, promptBar } from "./bars.js";
import { ask, Failure, pathTo } from "./api.js";
import { facts, h, link, place, redraw, section } from "./dom.js";
import { count, moment, seconds, words } from "./format.js";
import { FAILURES, standing } from "./state.js";
import { inWords } from "./timeline.js";

const SCORERS = [
  { name: "kv_locality", css: "locality", label: "KV locality: to compute or to fetch the prompt" },
  { name: "queue_depth", css: "queue", label: "queue depth: to wait for others" },
  { name: "kv_pressure", css: "pressure", label: "KV pressure: what evicting will cost" },
];

export function decisionPage(id) {
  const body = h("div");
  const heading = h("h1", { class: "id" }, id);
  const crumb = h("p", { class: "crumb" }, link(place("decisions"), "Turns"), " / ");
  let drawn = null;

  async function refresh(signal) {
    try {
      const told = await ask(pathTo("decisions", id), signal);
      page.title = heading.textContent = told.request || id;
      const lasting = JSON.stringify(told);
      if (lasting !== drawn) redraw(body, about(told), verdict(told), prompt(told), candidates(told));
      drawn = lasting;
    } catch (error) {
      if (!(error instanceof Failure) || error.status !== 404) throw error;
      const why = "No decision on a request of this name is remembered. The last 2,000 are.";
      redraw(body, h("p", { class: "empty" }, why));
      drawn = null;
    }
  }

  const page = { title: id, element: h("article", {}, crumb, heading, body), refresh };
  return page;
}

function about(told) {
  const answeredBy = told.outcome?.replica ?? told.replica; // else, if the decision came too late
  const session = told.session && link(place("sessions", told.session), told.session);
  return facts([
    ["Session", session],
    ["Client", told.client ?? "unnamed"],
    ["Came", moment(told.arrived_at)],
    ["Decided", told.decided_at && moment(told.decided_at)],
    ["State", FAILURES[told.state] ?? standing(told.state)],
    ["Replica", told.replica],
    ["Went to", answeredBy === told.replica ? null : answeredBy],
    ["Home from now on", told.home === told.replica ? null : told.home],
    ["Rule", told.rule],
    ["Waited", told.waited_s === undefined ? null : seconds(told.waited_s)],
    ["Decisions", told.decisions > 1 ? count(told.decisions) : null],
    ["Answer", told.outcome && `${count(told.outcome.output_tokens)} tokens`],
  ]);
}

function verdict(told) {
  const why = told.reason ?? told.refused_for ?? told.waited_for ?? "It waits for its first decision.";
  const { expected_ttft_s: expected = null, outcome } = told;
  const actual = outcome?.ttft_s ?? null;
  const most = Math.max(actual ?? 0, expected ?? 0) * 1.1 || 1;
  return section("Why", null,
    h("p", { class: "reason" }, why),
    told.reason && told.waited_for ? h("p", { class: "quiet" }, `It waited: ${told.waited_for}`) : null,
    h("div", { class: "ttft wide" },
      h("span", {}, "Time to the first token ", h("b", {}, seconds(actual)),
        ", expected ", h("b", {}, seconds(expected))),
      against(actual, expected, most)));
}

function prompt(told) {
  const { outcome, prefix_break: broken, expected_cached_tokens: expected } = told;
  const hoped = expected && Object.entries(expected).filter(([, tokens]) => tokens)
    .map(([tier, tokens]) => `${tier === "shared" ? tier : tier.toUpperCase()} ${count(tokens)}`);
  return section("Prompt", `${count(told.prompt_tokens)} tokens`,
    promptBar(outcome?.tokens, told.prompt_tokens),
    facts([
      ["Expected cached", hoped && (hoped.join(", ") || "nothing")],
      ["Cached", outcome && count(outcome.cached_tokens)],
      ["Prefix broke", broken && inWords(broken)],
      ["Not read", told.not_rendered],
    ]));
}

function candidates(told) {
  const costs = Object.entries(told.seconds ?? {}).map(([replica, by]) => ({
    replica, by, total: Object.values(by).reduce((sum, one) => sum + one, 0) }));
  if (!costs.length) return [];
  const most = Math.max(...costs.map(({ total }) => total)) || 1;
  const chosenFirst = ({ replica }) => replica !== told.replica;
  costs.sort((one, other) => one.total - other.total || chosenFirst(one) - chosenFirst(other));
  const rows = costs.map(({ replica, by, total }) => {
    const parts = SCORERS.map((scorer) => ({ ...scorer, label: words(scorer.name), value: by[scorer.name] }));
    const chosen = replica === told.replica;
    return h("tr", { class: chosen ? "chosen" : null },
      h("th", { scope: "row", class: "name" }, replica, chosen ? h("em", {}, "chosen") : null),
      h("td", { class: "bar" }, bar(parts, most, seconds)),
      SCORERS.map(({ name }) => h("td", { class: "number each" }, seconds(by[name]))),
      h("td", { class: "number" }, h("b", {}, seconds(total))));
  });
  const heads = [["name", "Replica"], ["bar", "Expected seconds"],
    ...SCORERS.map(({ name }) => ["number each", words(name)]), ["number", "Sum"]];
  const head = h("tr", {}, heads.map(([kind, label]) => h("th", { scope: "col", class: kind }, label)));
  return section("What each replica would have cost", "seconds times the scorers' weights",
    legend(SCORERS), h("table", { class: "candidates" }, h("thead", {}, head), h("tbody", {}, rows)));
}
