// One session: what it is, where its KV lies, and how each of its turns went.

import { ask, Failure, pathTo } from "./api.js";
import { facts, h, link, place, redraw } from "./dom.js";
import { ago, count, few, percent, seconds } from "./format.js";
import { running, waiting } from "./state.js";
import { timeline } from "./timeline.js";
import { whereabouts } from "./whereabouts.js";

export function sessionPage(id) {
  const heading = h("h1", { class: "id" }, id);
  const body = h("div", { "aria-live": "off" });
  const crumb = h("p", { class: "crumb" }, link(place("sessions"), "Sessions"), " / ");
  let drawn = null;

  async function refresh(signal) {
    let told;
    try {
      told = await ask(pathTo("sessions", id), signal);
    } catch (error) {
      if (!(error instanceof Failure) || error.status !== 404) throw error;
      redraw(body, h("p", { class: "empty" }, "No session of this name is remembered."));
      drawn = null;
      return;
    }
    const { kv, turns, forgotten_turns: forgotten, now } = told;
    const lasting = JSON.stringify([kv, turns, now?.running, now && ago(now.seen_s_ago)]);
    if (lasting === drawn) return;
    drawn = lasting;
    redraw(body, about(told), whereabouts(kv, now?.replica), timeline(turns, forgotten));
  }

  return { title: id, element: h("article", {}, crumb, heading, body), refresh };
}

function isUnplaced(turn) {
  return turn.replica === null;
}

function about({ now, client, turns }) {
  const moves = turns.filter((turn) => turn.rule === "moved").length;
  const splits = turns.filter((turn) => turn.rule === "split").length;
  const breaks = turns.filter((turn) => turn.prefix_break).length;
  const ttfts = turns.map((turn) => turn.ttft_s).filter((ttft_s) => ttft_s !== null);
  return facts([
    ["Client", client ?? "unnamed"],
    ["Lives on", now ? now.replica : turns.every(isUnplaced) ? "nowhere yet" : "forgotten"],
    ["State", turns.at(-1)?.state === "waits" ? waiting() : now && (now.running ? running()
      : `seen ${ago(now.seen_s_ago)} ago`.replace("now ago", "just now"))],
    ["Turns", now && count(now.turns)],
    ["Thinks", now && seconds(now.think_s)],
    ["Cached", now && percent(now.hit_ratio)],
    ["Slowest TTFT", ttfts.length ? seconds(Math.max(...ttfts)) : null],
    ["Moves, splits", turns.length ? `${few(moves)}, ${few(splits)}` : null],
    ["Broken prefixes", turns.length ? few(breaks) : null],
  ]);
}
