// The page's own address while something is turned: it changes at once, so that Back undoes what was just done,
// also before the server has answered. What the server then says is the same, and changes nothing.

import { replace } from "./history.js";

let last = { name: "", at: -Infinity };

// As Python writes a value into the address.
const text = (value, name) => (name === "temperature" && Number.isInteger(value) ? value.toFixed(1) : String(value));

export function write(defaults, turned) {
  if (!defaults) return;
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(turned)) {
    if (!(name in defaults)) continue; // what it turns the server writes
    if (text(value, name) === defaults[name]) query.delete(name);
    else query.set(name, text(value, name));
  }
  const search = query.size ? `?${query}` : "";
  if (search === location.search) return;
  const name = Object.keys(turned).join(" ");
  const now = performance.now();
  // A key that is held down turns the same knob again and again: that is one act.
  const again = name === last.name && now - last.at < 1000 && location.search === last.search;
  last = { name, at: now, search };
  if (again) replace(location.pathname + search);
  else history.pushState({}, "", location.pathname + search);
}
