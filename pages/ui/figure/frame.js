// The address of the page, and the page that embeds it. An embedding page may follow our address; its own address is then
// the one to share.
//
// Streamlit Community Cloud shows an app in a frame of the same origin, below /~/+/, and writes the query of the app into
// its own address on Streamlit's message SET_QUERY_PARAM. A Hugging Face Space is embedded in a page of huggingface.co,
// which takes its own message and has no path for the pages of a Space: there the hash names them. An address contains the
// user's text, so no other page gets a message.

// Streamlit remembers that a visitor has opened the sidebar: its room is kept until it is drawn (server/assets.py).
try {
  if (localStorage.getItem("stSidebarCollapsed-") === "false") document.documentElement.dataset.sidebar = "open";
} catch { /* a frame may have no storage */ }

const HUB = "https://huggingface.co";
const CLOUD_MESSAGE = { stCommVersion: 1, type: "SET_QUERY_PARAM" };
const FRAME_PARAMETERS = /^(__|embed$|embed_options$)/; // parameters of the frame only; the __… of a Space include a token

// The address of the embedding page if it has the same origin; otherwise null.
function embeddingAddress() {
  if (parent === window) return null;
  try {
    return new URL(parent.location.href);
  } catch {
    return null;
  }
}

// Older browsers have no ancestorOrigins; a page opened in a frame has a referrer.
const inHub = () => parent !== window
  && (location.ancestorOrigins?.[0] ?? new URL(document.referrer || "about:blank").origin) === HUB;

const folderAndPage = ({ pathname }) => pathname.match(/^(.*\/)([^/]*)$/).slice(1);

// The query of an address without the parameters of the frame.
export function sharedQuery({ search }) {
  const query = new URLSearchParams(search);
  for (const name of [...query.keys()]) if (FRAME_PARAMETERS.test(name)) query.delete(name);
  return query;
}

// Sends the current page and query to the embedding page, where it may know them.
export function announce() {
  if (embeddingAddress()) parent.postMessage({ ...CLOUD_MESSAGE, queryParams: location.search }, location.origin);
  else if (inHub()) {
    const [, page] = folderAndPage(location);
    parent.postMessage({ queryString: String(sharedQuery(location)), hash: page && `#/${page}` }, HUB);
  }
}

/**
 * The address, without a query, that opens this page for others: that of the embedding page if it follows
 * ours, with the same page and query in our folder or one above; otherwise our address.
 */
export function sharedAddress() {
  const embedding = embeddingAddress();
  const { origin, pathname } = embedding && followsOurs(embedding) ? embedding : location;
  return origin + pathname;
}

function followsOurs(embedding) {
  const [[folder, page], [ownFolder, ownPage]] = [embedding, location].map(folderAndPage);
  const [query, ownQuery] = [embedding, location].map((address) => String(new URLSearchParams([...sharedQuery(address)].sort())));
  return page === ownPage && ownFolder.startsWith(folder) && query === ownQuery;
}

// All pages are siblings, one level below the server. Streamlit would first look for the server below the page's own path.
window.__streamlit = { BACKEND_BASE_URL: new URL(".", location.href).href, ...window.__streamlit };

const [, page] = location.hash.match(/^#\/([a-z]+)$/) ?? [];
if (page && inHub()) location.replace(`./${page}${location.search}`);
addEventListener("popstate", announce);
announce();
