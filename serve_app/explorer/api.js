// What the gateway knows, asked for again and again.

const PERIOD_MS = 2000;
const PATIENCE_MS = 10_000; // the gateway itself gives the router half of that

/** Why there is no answer, in words. */
export class Failure extends Error {
  constructor(words, status = null) {
    super(words);
    this.status = status;
  }
}

/** Returns the JSON of a path under this page's own; throws a Failure if there is none. */
export async function ask(path, stopping) {
  const late = AbortSignal.timeout(PATIENCE_MS);
  let response;
  let text;
  try {
    response = await fetch(path, { signal: AbortSignal.any([stopping, late]) });
    text = await response.text();
  } catch (error) {
    if (stopping.aborted) throw error;
    const within = late.aborted ? ` within ${PATIENCE_MS / 1000} s` : "";
    throw new Failure(`The gateway does not answer${within}.`);
  }
  const body = parsed(text);
  if (response.ok && body !== null) return body;
  throw new Failure(sentence(body?.error?.message ?? `the gateway answered ${response.status}`),
    response.status);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // a proxy's words
  }
}

/** The path to one of `things`; its id is no part of that, as `.` and `..` would be ways through it. */
export function pathTo(things, id) {
  return `${things}/?id=${encodeURIComponent(id)}`;
}

function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

/**
 * Calls `task(signal)` now and, while `goesOn()`, again two seconds after it is done, but not while
 * nobody sees the page. `tell` gets null after each success, and a Failure otherwise.
 */
export class Poll {
  constructor(task, goesOn, tell) {
    this.task = task;
    this.goesOn = goesOn;
    this.tell = tell;
    this.stopping = new AbortController();
    this.timer = null;
    document.addEventListener("visibilitychange", () => this.wake(), {
      signal: this.stopping.signal,
    });
    this.run();
  }

  /** Asks at once if a pause is over. */
  wake() {
    if (this.timer === null || document.hidden || !this.goesOn()) return;
    clearTimeout(this.timer);
    this.run();
  }

  /** Asks nothing more. */
  stop() {
    clearTimeout(this.timer);
    this.stopping.abort();
  }

  async run() {
    const { signal } = this.stopping;
    this.timer = null;
    try {
      await this.task(signal);
      if (!signal.aborted) this.tell(null);
    } catch (error) {
      if (signal.aborted) return;
      this.tell(error);
      if (!(error instanceof Failure)) throw error;
    } finally {
      if (!signal.aborted) this.timer = setTimeout(() => this.again(), PERIOD_MS);
    }
  }

  again() {
    if (document.hidden || !this.goesOn()) this.timer = setTimeout(() => this.again(), PERIOD_MS);
    else this.run();
  }
}
