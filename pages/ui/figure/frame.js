// Where the page lies, and what stands around it. The page around a frame may follow our address, and then has the address
// that is worth copying.
//
// Streamlit Community Cloud shows an app in a frame of the same origin, below /~/+/, and writes the query of the app into
// its own address when it gets Streamlit's message SET_QUERY_PARAM. A Hugging Face Space stands in a page of huggingface.co,
// which takes a message of its own, and has no path for the pages of a Space: there the hash names them. An address has a
// person's text in it, so no other page gets a message from here.

const HUB = "https://huggingface.co";
const CLOUD_MESSAGE = { stCommVersion: 1, type: "SET_QUERY_PARAM" };
const OF_THE_FRAME = /^(__|embed$|embed_options$)/; // parameters of a frame alone; a Space has a token among its __…

// The address of the page around this frame, where that page is of the same origin; otherwise null.
function outer() {
  if (parent === window) return null;
  try {
    return new URL(parent.location.href);
  } catch {
    return null;
  }
}

// Older browsers have no ancestorOrigins; a page that a frame has opened has a referrer.
const inHub = () => parent !== window
  && (location.ancestorOrigins?.[0] ?? new URL(document.referrer || "about:blank").origin) === HUB;

const folderAndPage = ({ pathname }) => pathname.match(/^(.*\/)([^/]*)$/).slice(1);

// The parameters of an address that are for everybody.
export function shared({ search }) {
  const query = new URLSearchParams(search);
  for (const name of [...query.keys()]) if (OF_THE_FRAME.test(name)) query.delete(name);
  return query;
}

// Tells the page around this one, where it may know, which page and which query stand in our address now.
export function announce() {
  if (outer()) parent.postMessage({ ...CLOUD_MESSAGE, queryParams: location.search }, location.origin);
  else if (inHub()) {
    const [, page] = folderAndPage(location);
    parent.postMessage({ queryString: String(shared(location)), hash: page && `#/${page}` }, HUB);
  }
}

/**
 * The address, without a query, that opens this page for somebody else: that of the page around it if that page follows
 * ours, which shows in the same page and the same query, in a folder above ours or our own; otherwise our address.
 */
export function sharedAddress() {
  const around = outer();
  const { origin, pathname } = around && follows(around) ? around : location;
  return origin + pathname;
}

function follows(around) {
  const [[folder, page], [ownFolder, ownPage]] = [around, location].map(folderAndPage);
  const [query, ownQuery] = [around, location].map((one) => String(new URLSearchParams([...shared(one)].sort())));
  return page === ownPage && ownFolder.startsWith(folder) && query === ownQuery;
}

// All pages lie side by side, one level below the server. Streamlit would look for it below the page's own path first.
window.__streamlit = { BACKEND_BASE_URL: new URL(".", location.href).href, ...window.__streamlit };

const [, opens] = location.hash.match(/^#\/([a-z]+)$/) ?? [];
if (opens && inHub()) location.replace(`./${opens}${location.search}`);
addEventListener("popstate", announce);
announce();
