// The figure as the Lab's pages draw it: its acts go to the server, and into the address.

import { write } from "./address.js";
import render from "./figure.js";
import { sending } from "./history.js";

// What the figure itself asks for is a run of its own fragment; link.js stands outside of it and asks for the page.
function askForRest() {
  window.dispatchEvent(new Event("runagain"));
  sending();
}

export default (message) => render(message, { sending, write, askForRest });
