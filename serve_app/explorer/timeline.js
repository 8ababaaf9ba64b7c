// A session's turns, the newest first: where each went, what became of its prompt, how long it took.

import { against, bar, cachedRatio, legend, promptParts, TOKENS } from "./bars.js";
import { h, link, place, section } from "./dom.js";
import { clock, count, NONE, percent, seconds, words } from "./format.js";
import { moved } from "./keys.js";
import { Lanes } from "./lanes.js";
import { FAILURES, firstToken } from "./state.js";

const WAITED_S = 0.05; // less is nothing to speak of
const PAGE = 10; // turns that a Page key skips

export function timeline(turns, forgotten) {
  if (!turns.length) {
    const why = "No turn of it is remembered: the router started anew, or it was long ago.";
    return section("Turns", null, h("p", { class: "empty" }, why));
  }
  const note = forgotten ? `the last ${count(turns.length)}, newest first` : "newest first";
  const lanes = new Lanes(turns);
  const most = {
    tokens: Math.max(...turns.map((turn) => turn.prompt_tokens)),
    seconds: Math.max(...turns.map((turn) => Math.max(turn.ttft_s ?? 0, turn.expected_ttft_s ?? 0))),
  };
  const rows = turns.map((turn, at) => row(turn, turns[at - 1], lanes, most));
  const heads = [["turn", "Turn"], ["time", "Time"], ["lane", "Replica"],
    ["bar", "Prompt"], ["number tokens", "Tokens"], ["number cached", "Cached"],
    ["ttft", "TTFT, expected |"], ["number answer", "Answer"], ["note", "What happened"]];
  const head = h("thead", {}, h("tr", {},
    heads.map(([kind, label]) => h("th", { scope: "col", class: kind }, label))));
  const table = h("table", { class: "timeline", onkeydown: step }, head, h("tbody", {}, rows.reverse()));
  return section("Turns", note, lanes.legend(),
    legend([...TOKENS, { css: "broken", label: "prefix broke here" }]), table);
}

function row(turn, before, lanes, most) {
  const { prefix_break: broken } = turn;
  const at = broken && h("b", { class: "break", "aria-hidden": "true",
    style: { left: `${(100 * broken.token) / most.tokens}%` } });
  const cached = cachedRatio(turn);
  const happened = happenings(turn, lanes).join("; ") || null;
  return h("tr", {},
    h("th", { scope: "row", class: "turn" },
      link(place("decisions", turn.id), `${turn.turn}`, { title: "Why it went there" })),
    h("td", { class: "time" }, clock(turn.decided_at ?? turn.arrived_at)),
    h("td", { class: "lane" }, lanes.piece(turn, before),
      h("b", { class: "letter" }, lanes.letter(turn.replica))),
    h("td", { class: "bar" },
      bar(promptParts(turn.tokens, turn.prompt_tokens), most.tokens, count, at)),
    h("td", { class: "number tokens" }, count(turn.prompt_tokens)),
    h("td", { class: "number cached" }, percent(cached)),
    h("td", { class: "ttft" }, h("div", { class: "pair" }, h("span", { class: "number" }, firstToken(turn)),
      against(turn.ttft_s, turn.expected_ttft_s, most.seconds))),
    h("td", { class: "number answer" },
      turn.output_tokens === null ? NONE : count(turn.output_tokens)),
    h("td", { class: "note" }, happened && h("div", { title: happened }, happened)));
}

function happenings(turn, lanes) {
  const told = [];
  if (turn.rule === "moved") told.push(`moved to ${lanes.letter(turn.replica)}`);
  if (turn.rule === "split") told.push(`split to ${lanes.letter(turn.replica)}`);
  if (turn.prefix_break) told.push(inWords(turn.prefix_break));
  if (turn.state in FAILURES) told.push(FAILURES[turn.state]);
  if (turn.waited_s > WAITED_S) told.push(`waited ${seconds(turn.waited_s)} for room`);
  return told;
}

/** Where and why a prompt does not extend the one before. */
export function inWords({ kind, token, message_index: index, role, lost_tokens: lost }) {
  const where = index === null ? "" : `, message ${index} (${role})`;
  return `${words(kind)} at token ${count(token)}${where}, ${count(lost)} tokens lost`;
}

/** Moves the focus to another turn. */
function step(event) {
  const links = [...event.currentTarget.querySelectorAll("tbody a")];
  const to = moved(event.key, links.indexOf(document.activeElement), links.length - 1, PAGE);
  if (to === null) return;
  event.preventDefault();
  links[to].focus();
}
