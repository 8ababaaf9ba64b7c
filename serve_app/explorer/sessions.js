// The sessions that are known, as they are now.

import { ask } from "./api.js";
import { h, place } from "./dom.js";
import { ago, count, percent, seconds } from "./format.js";
import { Choice } from "./choice.js";
import { running, waiting } from "./state.js";
import { Table } from "./table.js";

const MOST = 10000;
const ALL_EVERY_MS = 60000; // in between only what changed is asked for
const SLACK_S = 6; // the router may take 5 s longer to answer than it took before
const BY_DEFAULT = "seen";

const COLUMNS = [
  { name: "session", label: "Session", value: (row) => row.session, cell: (row) => row.session,
    kind: "name" },
  { name: "client", label: "Client", value: (row) => row.client, cell: (row) => row.client ?? "–",
    kind: "client" },
  { name: "replica", label: "Replica", title: "Where it lives", value: (row) => row.replica,
    cell: (row) => row.replica ?? "–", kind: "replica" },
  { name: "turns", label: "Turns", value: (row) => row.turns, cell: (row) => count(row.turns) },
  { name: "prompt", label: "Prompt", title: "Tokens of its last prompt",
    value: (row) => row.prompt_tokens, cell: (row) => count(row.prompt_tokens) },
  { name: "hit", label: "Cached", title: "Share of its prompts that was cached",
    value: (row) => row.hit_ratio, cell: (row) => percent(row.hit_ratio) },
  { name: "ttft", label: "TTFT", title: "Time to the first token of its last turn",
    value: (row) => row.ttft_s, cell: (row) => seconds(row.ttft_s) },
  { name: "think", label: "Thinks", title: "Mean pause between its turns",
    value: (row) => row.think_s, cell: (row) => seconds(row.think_s) },
  { name: "seen", label: "Seen", title: "When a turn of it last began or ended",
    value: (row) => row.seenAtMs,
    cell: stands },
].map((column) => ({ kind: "number", ...column }));

function stands({ waits, running: runs, seenAtMs }) {
  if (waits) return waiting();
  return runs ? running() : ago((performance.now() - seenAtMs) / 1000);
}

export function sessionsPage(query) {
  const sessions = new Map();
  let askedAtMs = -Infinity;
  let allAtMs = -Infinity;
  let address = location.hash;

  const text = h("input", { type: "search", placeholder: "Find a session", name: "text",
    "aria-label": "Part of a session's name", value: query.get("text"), oninput: show });
  const client = new Choice("client", "All clients", query.get("client"), show);
  const replica = new Choice("replica", "All replicas", query.get("replica"), show);
  const total = h("p", { class: "total" });
  const sort = { name: query.get("sort") ?? BY_DEFAULT, descending: query.get("order") !== "up" };
  if (!COLUMNS.some((column) => column.name === sort.name)) sort.name = BY_DEFAULT;
  const table = new Table({
    label: "Sessions", columns: COLUMNS, sort, onsort: show,
    key: (row) => row.session, href: (row) => place("sessions", row.session),
    empty: "No session to show.",
  });

  function show() {
    const part = text.value.toLowerCase();
    const rows = [...sessions.values()].filter((row) =>
      client.has(row.client) && replica.has(row.replica)
      && row.session.toLowerCase().includes(part));
    table.show(rows);
    const waits = rows.filter((row) => row.waits).length;
    const busy = rows.filter((row) => row.running && !row.waits).length;
    const of = rows.length === sessions.size ? "" : ` of ${count(sessions.size)}`;
    total.textContent = `${count(rows.length)}${of} sessions, ${count(busy)} running`
      + (waits ? `, ${count(waits)} waiting` : "");
    remember();
  }

  /** Keeps the choices in the address, so that it can be shared; not in one that leads elsewhere. */
  function remember() {
    if (location.hash !== address) return; // of a click; this page is about to go
    const chosen = new URLSearchParams();
    if (text.value) chosen.set("text", text.value);
    if (client.value) chosen.set("client", client.value);
    if (replica.value) chosen.set("replica", replica.value);
    if (table.sort.name !== BY_DEFAULT) chosen.set("sort", table.sort.name);
    if (!table.sort.descending) chosen.set("order", "up");
    const more = chosen.size ? `?${chosen}` : "";
    history.replaceState(null, "", `${place("sessions")}${more}`);
    address = location.hash;
  }

  async function refresh(signal) {
    const nowMs = performance.now();
    const all = nowMs - allAtMs > ALL_EVERY_MS;
    const within = all ? "" : `&within_s=${((nowMs - askedAtMs) / 1000 + SLACK_S).toFixed(3)}`;
    const answer = await ask(`sessions?limit=${MOST}${within}`, signal);
    if (all) {
      sessions.clear();
      allAtMs = nowMs;
    }
    askedAtMs = nowMs;
    endWaiting(); // each answer has all that wait
    for (const one of answer.sessions) {
      sessions.set(one.session, { ...one, seenAtMs: performance.now() - one.seen_s_ago * 1000 });
    }
    client.offer([...sessions.values()].map((row) => row.client));
    replica.offer([...sessions.values()].map((row) => row.replica));
    show();
  }

  function endWaiting() {
    for (const [name, row] of sessions) {
      row.waits = false;
      if (row.turns === 0) sessions.delete(name); // it was turned away, or left
    }
  }

  const filters = h("form", { class: "filters", role: "search",
    onsubmit: (event) => event.preventDefault() }, text, client.element, replica.element, total);
  const element = h("div", { class: "fills" },
    h("h1", { class: "hidden" }, "Sessions"), filters, table.element);
  return { title: "Sessions", element, refresh };
}
