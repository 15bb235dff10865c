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

function slider(place, now, { follow, release }) {
  const input = made("input", { type: "range", name: "temperature", min: 0, max: PLACES, step: 1, value: placeOf(now) });
  const output = made("output", { textContent: now.toFixed(2) });
  const turned = () => temperatureAt(Number(input.value));
  const said = () => { output.textContent = turned().toFixed(2); input.setAttribute("aria-valuetext", output.textContent); };
  input.addEventListener("input", () => { said(); place.acts.follow({ temperature: turned() }); });
  input.addEventListener("change", () => { said(); place.acts.release({ temperature: turned() }); });
  said();
  output.textContent = now.toFixed(2);
  return made("label", {}, "Temperature ", input, output);
}

function choice(place, name, label, now, options) {
  const select = made("select", { name }, ...options.map((option) => made("option", { value: option, textContent: option })));
  select.value = now;
  select.addEventListener("change", () => {
    if (name === "mask") place.acts.follow({ mask: { kind: select.value, window: place.sent.window } });
    if (name === "head") place.acts.follow({ head: Number(select.value) });
    place.acts.release({ [name]: name === "head" ? Number(select.value) : select.value });
  });
  return made("label", {}, `${label} `, select);
}

// Draws the controls that Python names in `sent`; while one of them is in a hand, nothing is drawn over it.
export function controls(place, sent, acts) {
  Object.assign(place, { acts, sent });
  const wanted = JSON.stringify(sent ?? null);
  if (place.dataset.drawn === wanted || place.matches(":active")) return;
  place.dataset.drawn = wanted;
  const held = document.activeElement?.closest(".hand") === place ? document.activeElement.name : null;
  place.replaceChildren();
  if (!sent) return;
  if (sent.temperature !== null) place.append(slider(place, sent.temperature, acts));
  if (sent.masks) place.append(choice(place, "mask", "Mask", sent.mask, sent.masks));
  if (sent.heads > 1) place.append(choice(place, "head", "Head", String(sent.head), Array.from({ length: sent.heads }, (_, i) => String(i))));
  if (held) place.querySelector(`[name=${held}]`)?.focus();
}
