// The turns that came last, of all sessions: where to look for a slow one.

import { ask } from "./api.js";
import { cachedRatio } from "./bars.js";
import { h, place } from "./dom.js";
import { Choice } from "./choice.js";
import { clock, count, percent, seconds } from "./format.js";
import { firstToken } from "./state.js";
import { Table } from "./table.js";

const MOST = 2000;

const COLUMNS = [
  { name: "request", label: "Request", value: (row) => row.request,
    cell: (row) => row.request || row.id, kind: "name" },
  { name: "session", label: "Session", value: (row) => row.session, cell: (row) => row.session ?? "–",
    kind: "client" },
  { name: "replica", label: "Replica", value: (row) => row.replica, cell: (row) => row.replica ?? "–",
    kind: "replica" },
  { name: "rule", label: "Rule", value: (row) => row.rule, cell: (row) => row.rule ?? "–",
    kind: "rule" },
  { name: "prompt", label: "Prompt", title: "Tokens", value: (row) => row.prompt_tokens,
    cell: (row) => count(row.prompt_tokens) },
  { name: "cached", label: "Cached", value: cachedRatio, cell: (row) => percent(cachedRatio(row)) },
  { name: "ttft", label: "TTFT", value: (row) => row.ttft_s, cell: firstToken },
  { name: "late", label: "Late by", title: "Seconds beyond what was expected", value: late,
    cell: (row) => seconds(late(row)) },
  { name: "time", label: "Time", title: "When it came", value: (row) => row.arrived_at,
    cell: (row) => clock(row.arrived_at) },
].map((column) => ({ kind: "number", ...column }));

function late({ ttft_s: actual, expected_ttft_s: expected }) {
  return actual === null || expected === null ? null : actual - expected;
}

export function turnsPage(query) {
  let turns = [];
  const replica = new Choice("replica", "All replicas", query.get("replica"), show);
  const rule = new Choice("rule", "All rules", query.get("rule"), show);
  const total = h("p", { class: "total" });
  const table = new Table({
    label: "Turns", columns: COLUMNS, sort: { name: "time", descending: true }, onsort: show,
    key: (row) => row.id, href: (row) => place("decisions", row.id),
    empty: "No turn to show.",
  });

  function show() {
    const rows = turns.filter((row) => replica.has(row.replica) && rule.has(row.rule));
    table.show(rows);
    total.textContent = `${count(rows.length)} turns`;
  }

  async function refresh(signal) {
    turns = (await ask(`decisions?limit=${MOST}`, signal)).decisions;
    replica.offer(turns.map((row) => row.replica));
    rule.offer(turns.map((row) => row.rule));
    show();
  }

  const filters = h("div", { class: "filters" }, replica.element, rule.element, total);
  const element = h("div", { class: "fills" },
    h("h1", { class: "hidden" }, "Turns"), filters, table.element);
  return { title: "Turns", element, refresh };
}
