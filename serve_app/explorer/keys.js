// Keys that move through a list.

/** Returns the place, from 0 to `last`, to which a key leads from another; null if it leads nowhere. */
export function moved(key, from, last, page) {
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -last, End: last };
  return key in steps ? Math.max(0, Math.min(last, from + steps[key])) : null;
}
