// Elements. Data only ever becomes text or an attribute: nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

// Said of each, as what is no longer laid out as a table, on narrow screens, loses them otherwise.
const ROLES = { table: "table", thead: "rowgroup", tbody: "rowgroup", tr: "row", td: "cell" };

/** Makes an element; attributes that are null or false are left out, `on...` are listeners. */
export function h(tag, attributes = {}, ...children) {
  const role = tag === "th" ? `${attributes.scope === "row" ? "row" : "column"}header` : ROLES[tag];
  return fill(document.createElement(tag), { role, ...attributes }, children);
}

/** Makes an element of a drawing. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice("on".length), value);
    else if (name === "style") setStyle(element, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
  return element;
}

function setStyle(element, properties) {
  for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, value);
}

/** The link to a page of this one, which may be about a thing with any name. */
export function place(page, id = null) {
  return id === null ? `#/${page}` : `#/${page}/${encodeURIComponent(id)}`;
}

/** A link with a name by which the focus finds it again when the page is drawn anew. */
export function link(href, text, attributes = {}) {
  return h("a", { href, "data-key": href, ...attributes }, text);
}

/** Puts new children into an element; what had the focus has it afterwards, if it is still there. */
export function redraw(element, ...children) {
  const key = element.contains(document.activeElement) && document.activeElement.dataset.key;
  element.replaceChildren(...children.flat());
  if (!key) return;
  const again = [...element.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key);
  again?.focus({ preventScroll: true });
}

/** Shows these words, or nothing where there are none. What stands there is not said once more. */
export function say(element, words) {
  element.hidden = words === null;
  if (words !== null && element.textContent !== words) element.textContent = words;
}

/** Names and values, one beneath the other; those without a value are left out. */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined);
  const entries = known.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)));
  return h("dl", { class: "facts" }, entries);
}

/** A part of a page under a heading. */
export function section(title, note, ...children) {
  const heading = h("h2", {}, title, note && h("small", {}, note));
  return h("section", {}, heading, ...children);
}
