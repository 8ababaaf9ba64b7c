// Shows the page that the address names, and keeps it up to date.

import { Poll } from "./api.js";
import { decisionPage } from "./decision.js";
import { say } from "./dom.js";
import { replicasPage } from "./replicas.js";
import { sessionPage } from "./session.js";
import { sessionsPage } from "./sessions.js";
import { turnsPage } from "./turns.js";

// A page is {title, element, refresh(signal)}; it is made of what the address says after its name.
const PAGES = {
  sessions: (id, query) => (id === null ? sessionsPage(query) : sessionPage(id)),
  decisions: (id, query) => (id === null ? turnsPage(query) : decisionPage(id)),
  replicas: () => replicasPage(),
};

const view = document.getElementById("view");
const trouble = document.getElementById("trouble");
const live = document.getElementById("live");
let page = null;
let poll = null;

function address() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const known = Object.hasOwn(PAGES, name) ? name : "sessions";
  return { name: known, id: rest.length ? decoded(rest.join("/")) : null, query };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand
  }
}

function open() {
  poll?.stop();
  const { name, id, query } = address();
  page = PAGES[name](id, new URLSearchParams(query));
  entitle();
  for (const one of document.querySelectorAll("[data-page]")) {
    if (one.dataset.page === name) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  view.replaceChildren(page.element);
  view.setAttribute("aria-busy", "true");
  scrollTo(0, 0);
  poll = new Poll(page.refresh, isLive, tell);
}

/** Names the window; a page may learn its title as it is asked for. */
function entitle() {
  document.title = `${page.title} · warmturn`;
}

function isLive() {
  return live.getAttribute("aria-pressed") === "true";
}

function tell(failure) {
  view.removeAttribute("aria-busy");
  if (failure === null) {
    entitle();
    say(trouble, null);
  } else {
    say(trouble, isLive() ? `${failure.message} Asking again.` : failure.message);
  }
}

live.addEventListener("click", () => {
  live.setAttribute("aria-pressed", String(!isLive()));
  live.textContent = isLive() ? "Live" : "Paused";
  poll?.wake();
});
addEventListener("hashchange", () => {
  open();
  view.focus({ preventScroll: true });
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names a page
  view.focus();
});
open();
