// A table of any length that is sorted by any of its columns; only the rows in sight are drawn.

import { h } from "./dom.js";
import { moved } from "./keys.js";

const ROW_PX = 32;
const SPARE_ROWS = 8; // drawn beyond either end of what is in sight

/**
 * `columns` are {name, label, title, value(row), cell(row), kind}; the first one's cell is a link.
 * `key(row)` names a row, `href(row)` is where it leads, `sort` is {name, descending}.
 */
export class Table {
  constructor({ label, columns, key, href, sort, empty, onsort }) {
    Object.assign(this, { columns, key, href, sort, onsort });
    this.rows = [];
    this.active = 0;
    this.drawn = [];
    this.heads = columns.map((column) => this.head(column));
    this.above = h("tr", { class: "gap", "aria-hidden": "true" });
    this.below = h("tr", { class: "gap", "aria-hidden": "true" });
    this.body = h("tbody", { onkeydown: (event) => this.move(event) }, this.above, this.below);
    this.table = h("table", { "aria-label": label },
      h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.empty = h("p", { class: "empty" }, empty);
    this.element = h("div", { class: "scroller", onscroll: () => this.draw() },
      this.table, this.empty);
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  head(column) {
    const order = h("button", { type: "button", title: column.title,
      onclick: () => this.sortBy(column) }, column.label);
    return h("th", { scope: "col", class: column.kind }, order);
  }

  /** Shows these rows, sorted. */
  show(rows) {
    const { value } = this.columns.find((column) => column.name === this.sort.name);
    const sign = this.sort.descending ? -1 : 1;
    const keyed = rows.map((row) => [value(row), row]);
    keyed.sort(([one], [other]) => inOrder(one, other, sign));
    this.rows = keyed.map(([, row]) => row);
    this.active = Math.min(this.active, Math.max(0, this.rows.length - 1));
    this.columns.forEach((column, index) => {
      const order = this.sort.descending ? "descending" : "ascending";
      this.heads[index].ariaSort = column.name === this.sort.name ? order : null;
    });
    this.table.ariaRowCount = this.rows.length + 1;
    this.empty.hidden = this.rows.length > 0;
    this.draw();
  }

  sortBy({ name, kind }) {
    const again = this.sort.name === name;
    this.sort = { name, descending: again ? !this.sort.descending : kind === "number" };
    this.onsort();
    this.element.scrollTop = 0;
  }

  draw() {
    const inSight = Math.ceil(this.element.clientHeight / ROW_PX);
    const top = Math.floor(this.element.scrollTop / ROW_PX) - SPARE_ROWS;
    const start = Math.max(0, Math.min(top, this.rows.length - inSight));
    const shown = this.rows.slice(start, start + inSight + 2 * SPARE_ROWS);
    const focused = this.body.contains(document.activeElement) && document.activeElement.dataset.key;
    while (this.drawn.length < shown.length) {
      this.drawn.push(this.emptyRow());
      this.below.before(this.drawn.at(-1));
    }
    while (this.drawn.length > shown.length) this.drawn.pop().remove();
    shown.forEach((row, index) => this.put(this.drawn[index], row, start + index));
    this.above.style.height = `${start * ROW_PX}px`;
    this.below.style.height = `${(this.rows.length - start - shown.length) * ROW_PX}px`;
    if (focused && document.activeElement.dataset.key !== focused) this.refocus(focused);
  }

  emptyRow() {
    const cells = this.columns.map(({ kind }) => h("td", { class: kind }));
    cells[0].append(h("a"));
    return h("tr", {}, cells);
  }

  put(element, row, index) {
    element.ariaRowIndex = index + 2;
    this.columns.forEach(({ cell }, at) => {
      const told = cell(row);
      if (at) element.cells[at].replaceChildren(told);
      else setLink(element.cells[0].firstChild, this.href(row), this.key(row), told);
    });
    element.cells[0].firstChild.tabIndex = index === this.active ? 0 : -1;
  }

  /** Gives the focus back to a row that went to another place. */
  refocus(key) {
    const again = this.drawn.find((row) => row.cells[0].firstChild.dataset.key === key);
    again?.cells[0].firstChild.focus({ preventScroll: true });
  }

  move(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW_PX) - 2);
    const { key } = event.target.dataset;
    const from = this.rows.findIndex((row) => this.key(row) === key);
    const to = moved(event.key, from, this.rows.length - 1, page);
    if (to === null) return;
    event.preventDefault();
    this.active = to;
    const top = this.active * ROW_PX;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    if (top + 2 * ROW_PX > scrollTop + clientHeight) {
      this.element.scrollTop = top + 2 * ROW_PX - clientHeight;
    }
    this.draw();
    this.refocus(this.key(this.rows[this.active]));
  }
}

function setLink(link, href, key, text) {
  if (link.dataset.key !== key) {
    link.href = href;
    link.dataset.key = key;
    link.title = text;
  }
  link.textContent = text;
}

/** What is not known comes last in either order. */
function inOrder(one, other, sign) {
  const missing = (one ?? null) === null;
  if (missing || (other ?? null) === null) return missing - ((other ?? null) === null);
  return one < other ? -sign : one > other ? sign : 0;
}
