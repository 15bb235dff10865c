// The figure as the Lab's pages draw it: its acts go to the server, and into the address.

import { act, isLate, runAgain } from "./address.js";
import render from "./figure.js";

export default (message) => render(message, {
  act: (done, defaults, turned) => act(done, defaults, turned, (acts) => message.setStateValue("acts", acts)),
  isLate,
  askForRest: runAgain, // what the figure itself asks for is a run of its own fragment
});
