// The figure on the Lab's pages: its acts go to the server and into the address.

import { act, isLate, runAgain } from "./address.js";
import render from "./figure.js";
import { FirstScreen } from "./screen.js";

export default (message) => render(message, {
  act: (action, defaults, knobs) => act(action, defaults, knobs, (acts) => message.setStateValue("acts", acts)),
  isLate,
  FirstScreen,
  requestRest: runAgain, // the figure's own requests run only its fragment
});
