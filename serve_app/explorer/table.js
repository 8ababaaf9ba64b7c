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
    this.current = null; // the key of the row that has the focus, or had it last
    this.drawn = [];
    this.heads = columns.map((column) => this.head(column));
    this.above = h("tr", { class: "gap", "aria-hidden": "true" });
    this.below = h("tr", { class: "gap", "aria-hidden": "true" });
    this.body = h("tbody", { tabindex: -1, onkeydown: (event) => this.move(event),
      onfocusin: ({ target }) => { this.current = target.dataset.key ?? this.current; } },
    this.above, this.below);
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
    this.current = null;
    this.onsort();
    this.element.scrollTop = 0;
  }

  draw() {
    const inSight = Math.ceil(this.element.clientHeight / ROW_PX);
    const top = Math.floor(this.element.scrollTop / ROW_PX) - SPARE_ROWS;
    const start = Math.max(0, Math.min(top, this.rows.length - inSight));
    const shown = this.rows.slice(start, start + inSight + 2 * SPARE_ROWS);
    const stop = Math.max(start, Math.min(this.index(), start + shown.length - 1)); // of the Tab key
    const hasFocus = this.body.contains(document.activeElement);
    while (this.drawn.length < shown.length) {
      this.drawn.push(this.emptyRow());
      this.below.before(this.drawn.at(-1));
    }
    while (this.drawn.length > shown.length) this.drawn.pop().remove();
    shown.forEach((row, index) => this.put(this.drawn[index], row, start + index, stop));
    this.above.style.height = `${start * ROW_PX}px`;
    this.below.style.height = `${(this.rows.length - start - shown.length) * ROW_PX}px`;
    if (hasFocus && document.activeElement.dataset.key !== this.current) this.refocus();
  }

  /** The place of the current row, -1 if there is none. */
  index() {
    return this.rows.findIndex((row) => this.key(row) === this.current);
  }

  emptyRow() {
    const cells = this.columns.map(({ kind }) => h("td", { class: kind }));
    cells[0].append(h("a"));
    return h("tr", {}, cells);
  }

  put(element, row, index, stop) {
    element.ariaRowIndex = index + 2;
    this.columns.forEach(({ cell }, at) => {
      const told = cell(row);
      if (at) element.cells[at].replaceChildren(told);
      else setLink(element.cells[0].firstChild, this.href(row), this.key(row), told);
    });
    element.cells[0].firstChild.tabIndex = index === stop ? 0 : -1;
  }

  /** Gives the focus to the current row, wherever it went; while that is not drawn, to no row. */
  refocus() {
    const links = this.drawn.map((row) => row.cells[0].firstChild);
    const current = links.find((link) => link.dataset.key === this.current);
    (current ?? this.body).focus({ preventScroll: true });
  }

  move(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW_PX) - 2);
    const to = moved(event.key, this.index(), this.rows.length - 1, page);
    if (to === null || !this.rows.length) return;
    event.preventDefault();
    this.current = this.key(this.rows[to]);
    const top = to * ROW_PX;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    if (top + 2 * ROW_PX > scrollTop + clientHeight) {
      this.element.scrollTop = top + 2 * ROW_PX - clientHeight;
    }
    this.draw();
    this.refocus();
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
