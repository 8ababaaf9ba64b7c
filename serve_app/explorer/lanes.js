// The replicas that a session went to, a lane for each, as in a graph of commits. A turn that waits,
// or was turned away, is in none.

import { h, link, place, svg } from "./dom.js";

const LANE_PX = 14;
const ROW_PX = 36; // as in charts.css
const MOST = 8; // beyond these, replicas share the last lane

/** Lanes of the replicas of `turns`, in the order of their first turns. */
export class Lanes {
  constructor(turns) {
    const placed = turns.filter((turn) => turn.replica !== null);
    this.replicas = [...new Set(placed.map((turn) => turn.replica))];
    this.width = Math.min(MOST, this.replicas.length) * LANE_PX;
  }

  /** The letter of a replica. */
  letter(replica) {
    const index = this.replicas.indexOf(replica);
    if (index < 0) return "";
    return index < 26 ? String.fromCharCode("A".charCodeAt(0) + index) : String(index + 1);
  }

  x(turn) {
    return (Math.min(MOST - 1, this.replicas.indexOf(turn.replica)) + 0.5) * LANE_PX;
  }

  /** One turn's piece: its mark, and the way to the turn before it, which is one row below. */
  piece(turn, before) {
    if (turn.replica === null) return null;
    const x = this.x(turn);
    const way = before?.replica && svg("path", { class: x === this.x(before) ? "way" : "way away",
      d: curve(x, this.x(before)) });
    const told = `${this.letter(turn.replica)}, ${turn.rule}`;
    return svg("svg", { class: "lanes", width: this.width, height: ROW_PX, role: "img",
      "aria-label": `${turn.replica}, ${turn.rule}` },
    svg("title", {}, told), way, mark(turn.rule, x, ROW_PX / 2));
  }

  /** Which letter stands for which replica. */
  legend() {
    const entries = this.replicas.map((replica) => h("li", {},
      h("b", { class: "letter" }, this.letter(replica)), " ",
      link(`${place("sessions")}?replica=${encodeURIComponent(replica)}`, replica)));
    return h("ul", { class: "legend" }, entries);
  }
}

function curve(x, to) {
  const from = ROW_PX / 2;
  const until = from + ROW_PX;
  return `M${x} ${from} C${x} ${from + ROW_PX * 0.6} ${to} ${until - ROW_PX * 0.6} ${to} ${until}`;
}

/** A disc; a diamond where the session moved, a triangle where it was split, a ring where new. */
function mark(rule, x, y) {
  if (rule === "moved") {
    return svg("path", { class: "mark moved", d: `M${x} ${y - 6}l6 6l-6 6l-6 -6z` });
  }
  if (rule === "split") {
    return svg("path", { class: "mark split", d: `M${x} ${y - 6}l6 10h-12z` });
  }
  return svg("circle", { class: `mark ${rule}`, cx: x, cy: y, r: rule === "new" ? 4.5 : 4 });
}
