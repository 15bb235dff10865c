// The entries of the browser's history, and the acts of the page that the server has not answered yet. Without a DOM:
// `browser` pushes and replaces, a `send` takes acts to the server.
//
// Every act of the page (a knob, a click, Back, Forward) takes the next number, and travels in a list with all the acts
// that are not answered, so that a message which never arrives loses nothing. The server answers with a whole state, the
// number of the last act in it, and how many acts of a person it has heard of by itself (a widget of the sidebar, a
// button). An answer to an older number changes nothing.

const LONGEST = 100; // acts that wait at most
const EMBED = ["embed", "embed_options"]; // Streamlit's own keys, which no state has

const sorted = (query) => String(new URLSearchParams([...new URLSearchParams(query)].sort()));

/** Whether two queries say the same. */
export const same = (one, other) => sorted(one) === sorted(other);

/** A state as a query; what Streamlit reads of the `query` before stays in it. */
function queryOf(state, query) {
  const now = new URLSearchParams(query), next = new URLSearchParams(state);
  for (const name of EMBED) if (now.has(name)) next.set(name, now.get(name));
  return String(next);
}

/** The state that a query says; of two values of one key the last counts. */
function stateOf(query) {
  const state = Object.fromEntries(new URLSearchParams(query));
  for (const name of EMBED) delete state[name];
  return state;
}

export class Entries {
  /** The number of the last act. */
  number = 0;
  /** The acts that the server has not answered. */
  acts = [];
  /** The session of the server, and its last answer: each has a `serial` of its own. */
  session = null;
  serial = 0;
  /** How many acts the server had heard of by itself when its last answer came into the address. */
  serverActs = 0;

  /** @param browser `push(path, query, number)` and `replace(path, query, number)` write the address. */
  constructor(path, query, browser) {
    /** The current entry: its path, its query, the number of the act that made it, and whether the server has answered it. */
    Object.assign(this, { path, query, entry: 0, answered: false, browser });
    this.last = { names: "", at: -Infinity, query: null }; // the last act that wrote the address
  }

  /** What travels to the server. */
  get message() {
    return { session: this.session ?? "", seen: this.serial, acts: this.acts };
  }

  /**
   * Something was turned or clicked.
   * @param act what the server is told of it
   * @param names the knobs that are turned; the same ones within a second, or by a key that is held, are one entry
   * @param query what the address says then; null where only the server knows
   */
  act(act, names, query, now = 0, held = false) {
    this.number += 1;
    const { last } = this;
    const previous = this.acts.at(-1);
    const again = Boolean(names) && names === last.names && (held || now - last.at < 1000) && last.query === this.query;
    if (previous?.knob && act.knob && previous.key === act.key && Object.keys(previous.knob).join(" ") === Object.keys(act.knob).join(" ")) {
      this.acts.pop(); // only what it is turned to last counts
    }
    this.acts = [...this.acts, { ...act, number: this.number }].slice(-LONGEST);
    if (query === null || same(query, this.query)) return;
    this.write(again ? "replace" : "push", query);
    Object.assign(this, { entry: this.number, answered: true });
    this.last = { names, at: now, query: this.query };
  }

  /** Back or Forward has come to an entry of the same page: a whole state; what waits for an answer is undone by it. */
  traversed(query) {
    if (same(query, this.query) && !this.acts.length) {
      this.query = query; // another fragment, or the same state once more
      return false;
    }
    this.number += 1;
    this.acts = [{ number: this.number, state: stateOf(query) }];
    Object.assign(this, { query, entry: this.number, answered: true });
    return true;
  }

  /** Streamlit has opened another page; its state is in the first answer. */
  opened(path) {
    this.path = path;
    this.browser.push(path, this.query, this.number);
    Object.assign(this, { entry: this.number, answered: false });
  }

  /** The server has answered. Returns what is to be sent in return: "acts", or nothing. */
  answer({ session, serial, number, serverActs, page, pages, state, restored }) {
    if (session !== this.session) {
      const first = this.session === null;
      Object.assign(this, { session, serial: 0, serverActs });
      if (!first) { // another server, which knows nothing of this page: the address is right
        this.number += 1;
        this.acts = [{ number: this.number, state: stateOf(this.query) }];
        return "acts";
      }
    }
    if (serial <= this.serial) return null;
    this.serial = serial;
    this.acts = this.acts.filter((act) => act.number > number);
    if (number < this.number || page !== this.pageOf(pages)) return null; // an older act, or a page that has been left
    const query = queryOf(state, this.query);
    if (!same(query, this.query)) {
      const isAct = this.answered && (number > this.entry || serverActs > this.serverActs);
      this.write(isAct ? "push" : "replace", query);
    }
    Object.assign(this, { entry: this.number, answered: true, serverActs });
    return restored ? "acts" : null;
  }

  /** Which of the `pages` is shown; the first has an empty name. */
  pageOf(pages) {
    const name = this.path.split("/").at(-1);
    return pages.includes(name) ? name : "";
  }

  write(how, query) {
    this.query = query;
    this.browser[how](this.path, query, this.number);
  }
}
