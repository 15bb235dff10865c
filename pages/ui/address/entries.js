// The entries of the browser's history, and the acts (user actions) that the server has not answered yet. It uses no DOM:
// `browser` writes history entries, the caller sends the acts to the server.
//
// Every act (a changed knob, a click, Back, Forward) gets the next number, and is sent in a list with all
// unanswered acts, so that a lost message loses nothing. The server answers with a complete state, the
// number of the last act in it, and the count of user actions that it received directly (a widget of the sidebar, a
// button). An answer to an older act changes nothing.

const MAX_ACTS = 100; // that wait for an answer
const EMBED = ["embed", "embed_options"]; // Streamlit's keys, which belong to no state

const sorted = (query) => String(new URLSearchParams([...new URLSearchParams(query)].sort()));

/** A knob's value as Python writes it into the address. The knob's default tells whether it is a float, such as "1.0". */
export const valueText = (value, text) => (Number.isInteger(value) && text.includes(".") ? value.toFixed(1) : String(value));

/** Whether two queries are the same apart from their order. */
const sameQuery = (a, b) => sorted(a) === sorted(b);

/** A state as a query, with Streamlit's keys of the previous `query`. */
function queryOf(state, query) {
  const previous = new URLSearchParams(query), next = new URLSearchParams(state);
  for (const name of EMBED) if (previous.has(name)) next.set(name, previous.get(name));
  return String(next);
}

/** The state of a query; the last value of a repeated key counts. */
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
  /** The session of the server, and the `serial` of its last answer. */
  session = null;
  serial = 0;
  /** The server's count of its own acts when its last answer was written to the address. */
  serverActs = 0;

  /** @param browser `push(path, query, number)` and `replace(path, query, number)` write the address. */
  constructor(path, query, browser) {
    /** The current entry: its path, its query, the number of the act that made it, and whether the server has answered it. */
    Object.assign(this, { path, query, entry: 0, answered: false, browser });
    this.last = { names: "", at: -Infinity, query: null }; // the last act that wrote the address
  }

  /** The message for the server. */
  get message() {
    return { session: this.session ?? "", seen: this.serial, acts: this.acts };
  }

  /**
   * Records a user action.
   * @param act the message for the server
   * @param names the knobs that it changes; changes of the same knobs within a second, or by a held key, are one entry
   * @param query the new query; null where only the server can write it
   */
  act(act, names, query, time = 0, keyIsHeld = false) {
    this.number += 1;
    const { last } = this;
    const previous = this.acts.at(-1);
    const merges = Boolean(names) && names === last.names && (keyIsHeld || time - last.at < 1000) && last.query === this.query;
    if (previous?.knob && act.knob && previous.key === act.key && Object.keys(previous.knob).join(" ") === Object.keys(act.knob).join(" ")) {
      this.acts.pop(); // only the last value of a knob counts
    }
    this.acts = [...this.acts, { ...act, number: this.number }].slice(-MAX_ACTS);
    if (query === null || sameQuery(query, this.query)) return;
    this.write(merges ? "replace" : "push", query);
    Object.assign(this, { entry: this.number, answered: true });
    this.last = { names, at: time, query: this.query };
  }

  /** Records that Back or Forward reached an entry of the same page: a complete state, which replaces all unanswered acts. */
  traversed(query) {
    if (sameQuery(query, this.query) && !this.acts.length) {
      this.query = query; // another fragment, or the same state
      return false;
    }
    this.number += 1;
    this.acts = [{ number: this.number, state: stateOf(query) }];
    Object.assign(this, { query, entry: this.number, answered: true });
    return true;
  }

  /** Records that Streamlit opened another page; its state is in the first answer. */
  opened(path) {
    this.path = path;
    this.browser.push(path, this.query, this.number);
    Object.assign(this, { entry: this.number, answered: false });
  }

  /** Handles an answer of the server. Returns "acts" if the acts must be sent again, otherwise null. */
  answer({ session, serial, number, serverActs, page, pages, state, restored }) {
    if (session !== this.session) {
      const isFirst = this.session === null;
      Object.assign(this, { session, serial: 0, serverActs });
      if (!isFirst) { // another server, without the state of this page: the address is authoritative
        this.number += 1;
        this.acts = [{ number: this.number, state: stateOf(this.query) }];
        return "acts";
      }
    }
    if (serial <= this.serial) return null;
    this.serial = serial;
    this.acts = this.acts.filter((act) => act.number > number);
    if (number < this.number || page !== this.pageOf(pages)) return null; // an older act, or another page
    const query = queryOf(state, this.query);
    if (!sameQuery(query, this.query)) {
      const isAct = this.answered && (number > this.entry || serverActs > this.serverActs);
      this.write(isAct ? "push" : "replace", query);
    }
    Object.assign(this, { entry: this.number, answered: true, serverActs });
    return restored ? "acts" : null;
  }

  /** The current one of the `pages`; the first has an empty name. */
  pageOf(pages) {
    const name = this.path.split("/").at(-1);
    return pages.includes(name) ? name : "";
  }

  write(method, query) {
    this.query = query;
    this.browser[method](this.path, query, this.number);
  }
}
