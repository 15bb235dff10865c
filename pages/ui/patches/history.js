// The Lab alone writes the address and its history; Streamlit hears nothing of Back and Forward.
//
// Replaces: history.pushState and history.replaceState, and listens to popstate before Streamlit does.
// Why: an address of the Lab is the state of the page, with an entry for each act. Streamlit writes the address too, when a page
//   is opened and when the server changes query parameters, and runs the script again on Back and Forward with its own idea of both.
// Canary: tests/test_browser_address.py, test_back_undoes_every_action_even_with_late_answers.
// Public replacement: an option that leaves the address to the app, with an event when Streamlit opens a page or a person goes back.
//
// It runs before Streamlit's own scripts.

const { pushState, replaceState } = history;
const METHODS = { push: pushState, replace: replaceState };

/** Writes an entry: `how` is "push" or "replace". */
export const write = (how, state, url) => METHODS[how].call(history, state, "", url);

/**
 * Takes the history from Streamlit.
 * @param opened is told the path of another page that Streamlit has opened
 * @param traversed is called after Back or Forward
 */
export function takeHistory(opened, traversed) {
  history.pushState = history.replaceState = (state, title, url) => {
    const { pathname } = new URL(url ?? "", location.href);
    if (pathname !== location.pathname) opened(pathname);
  };
  addEventListener("popstate", (event) => {
    event.stopImmediatePropagation();
    traversed();
  }, true);
}
