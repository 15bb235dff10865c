// Draws the first screen of the bare address from its packed numbers, while the page connects to its server; the page then
// draws the same at the same place, and this one goes.

import { unpack } from "./message.js";
import { FirstScreen } from "./screen.js";

const MOST_WAITING = 30000; // milliseconds after which it goes in any case

async function draw() {
  const answer = await fetch(new URL("./opening.bin", import.meta.url));
  if (!answer.ok) return;
  const { screen } = unpack(new Uint8Array(await answer.arrayBuffer()));
  const opening = document.createElement("div");
  opening.id = "opening";
  opening.inert = true;
  opening.innerHTML = "<div class='screen'></div><div class='knobs'><div class='controls'></div><div class='tools'></div></div>";
  document.body.append(opening);
  new FirstScreen(opening.firstChild, () => {}).update(screen, null, false);
  const isThere = () => document.querySelector("#root .screen .over > *");
  const began = performance.now();
  const check = () => {
    if (isThere() || performance.now() - began > MOST_WAITING) opening.remove();
    else requestAnimationFrame(check);
  };
  check();
}

draw().catch(() => {}); // the page itself draws everything
