// Only the Lab writes the address and its history; Streamlit gets no events of Back and Forward.
//
// Replaces: history.pushState and history.replaceState, and listens to popstate before Streamlit does.
// Why: an address of the Lab is the state of the page, with an entry for each act. Streamlit writes the address too, when a page
//   is opened and when the server changes query parameters, and runs the script again on Back and Forward with its own idea of both.
// Canary: tests/pages/test_browser_address.py, test_back_undoes_every_action_even_with_late_answers.
// Public replacement: an option that leaves the address to the app, with an event when Streamlit opens a page or a person goes back.
//
// It runs before Streamlit's scripts.

const { pushState, replaceState } = history;
const METHODS = { push: pushState, replace: replaceState };

/** Writes an entry; `method` is "push" or "replace". */
export const write = (method, state, url) => METHODS[method].call(history, state, "", url);

/**
 * Takes over the history from Streamlit.
 * @param onOpen receives the path of a page that Streamlit opened
 * @param onTraverse is called after Back or Forward
 */
export function takeHistory(onOpen, onTraverse) {
  history.pushState = history.replaceState = (state, title, url) => {
    const { pathname } = new URL(url ?? "", location.href);
    if (pathname !== location.pathname) onOpen(pathname);
  };
  addEventListener("popstate", (event) => {
    event.stopImmediatePropagation();
    onTraverse();
  }, true);
}
