// The component's own controls: what must follow the hand cannot wait for a server.

// A slider's place to a temperature and back: even steps from cold to hot, 0.05 to 10, with 1 near the middle.
const LOW = Math.log(0.05), HIGH = Math.log(10), PLACES = 200;
const temperatureAt = (place) => Math.min(10, Math.max(0.05, Math.round(Math.exp(LOW + (HIGH - LOW) * place / PLACES) * 20) / 20));
const placeOf = (temperature) => Math.round(((Math.log(temperature) - LOW) / (HIGH - LOW)) * PLACES);

function made(tag, more, ...children) {
  const element = Object.assign(document.createElement(tag), more);
  element.append(...children);
  return element;
}

function slider(place) {
  const input = made("input", { type: "range", name: "temperature", min: 0, max: PLACES, step: 1 }), output = made("output");
  const turned = () => temperatureAt(Number(input.value));
  const say = (temperature) => { output.textContent = temperature.toFixed(2); input.setAttribute("aria-valuetext", output.textContent); };
  input.addEventListener("input", () => { say(turned()); place.acts.follow({ temperature: turned() }); });
  input.addEventListener("change", () => { say(turned()); place.acts.release({ temperature: turned() }); });
  input.show = (temperature) => { input.value = placeOf(temperature); say(temperature); };
  return made("label", {}, "Temperature ", input, output);
}

function choice(place, name, label, options) {
  const select = made("select", { name }, ...options.map((option) => made("option", { value: option, textContent: option })));
  select.addEventListener("change", () => {
    const value = name === "head" ? Number(select.value) : select.value;
    place.acts.follow(name === "mask" ? { mask: { kind: value, window: place.sent.window } } : { [name]: value });
    place.acts.release({ [name]: value });
  });
  select.show = (value) => { select.value = value; };
  return made("label", {}, `${label} `, select);
}

function whole(place, name, label, least) {
  const input = made("input", { type: "number", name, min: least, max: place.sent.most[name], step: 1, required: true });
  input.addEventListener("change", () => {
    if (!input.reportValidity()) return; // the browser says what it must be
    input.shown = input.value;
    place.acts.release({ [name]: Number(input.value) });
  });
  input.addEventListener("blur", () => { if (!input.checkValidity()) input.value = input.shown; });
  // What somebody is typing is theirs.
  input.show = (value) => { if (document.activeElement !== input || input.value === input.shown) input.value = input.shown = String(value); };
  return made("label", {}, `${label} `, input);
}

// Draws the controls that Python names in `sent`, once; from then on they only show what is so. While one of
// them is in a hand, nothing is changed.
export function controls(place, sent, acts) {
  Object.assign(place, { acts, sent });
  const there = sent && [["temperature", "mask", "d_model", "seed"].map((name) => sent[name] !== null), sent.masks, sent.heads];
  const wanted = JSON.stringify(there ?? null);
  if (place.matches(":active")) return;
  if (place.dataset.drawn !== wanted) {
    place.dataset.drawn = wanted;
    place.replaceChildren();
    if (!sent) return;
    if (sent.temperature !== null) place.append(slider(place));
    if (sent.masks) place.append(choice(place, "mask", "Mask", sent.masks));
    if (sent.heads > 1) place.append(choice(place, "head", "Head", Array.from({ length: sent.heads }, (_, i) => i)));
    if (sent.d_model !== null) place.append(whole(place, "d_model", "d_model", 1));
    if (sent.seed !== null) place.append(whole(place, "seed", "Seed", 0));
  }
  for (const control of place.querySelectorAll("[name]")) control.show(sent[control.name]);
}
