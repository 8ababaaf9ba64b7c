// A choice among the values that a column has, or of none of them.

import { h } from "./dom.js";

export class Choice {
  constructor(name, all, value, onchange) {
    this.all = h("option", { value: "" }, all);
    this.element = h("select", { name, "aria-label": all, onchange }, this.all);
    this.offered = "";
    this.offer(value ? [value] : []);
    this.element.value = value ?? "";
  }

  /** What is chosen; empty where all are. */
  get value() {
    return this.element.value;
  }

  /** Whether a row with this value is to be seen. */
  has(value) {
    return this.value === "" || this.value === value;
  }

  /** Offers these values, and still what is chosen. */
  offer(values) {
    const chosen = this.value;
    const known = new Set(values.filter((value) => value !== null));
    if (chosen) known.add(chosen);
    const sorted = [...known].sort();
    const offered = JSON.stringify(sorted);
    if (offered === this.offered) return;
    this.offered = offered;
    const options = sorted.map((value) => h("option", { value }, value));
    this.element.replaceChildren(this.all, ...options);
    this.element.value = chosen;
  }
}
