// Completes Streamlit's page links: their full address, the current page, and opening in a new tab.

// The full address of a link: Streamlit writes only "heads", or nothing for the first page. Long values are not in the
// link's state but in the address bar.
function fullAddress(link, search, inMenu) {
  const [path, linkQuery] = link.getAttribute("href").split("?");
  const page = new URL(path || ".", location.href);
  const state = new URLSearchParams(search);
  if (!inMenu) for (const [key, value] of new URLSearchParams(linkQuery)) state.set(key, value);
  page.search = state;
  return page.href;
}

function markCurrent(app, page) {
  const menu = app.querySelector(".st-key-menu");
  if (!menu) return;
  menu.setAttribute("role", "navigation");
  menu.setAttribute("aria-label", "Pages");
  for (const link of menu.querySelectorAll("a")) {
    const [wasCurrent, isCurrent] = [link.ariaCurrent === "page", link.textContent.trim() === page];
    if (wasCurrent === isCurrent) continue;
    link.ariaCurrent = isCurrent ? "page" : null;
    if (!isCurrent) continue;
    resizeObserver.disconnect();
    resizeObserver.observe(link);
    resizeObserver.observe(menu);
  }
}

// On a phone the menu is wider than the page: scrolls it to the current page whenever one of them gets a
// size, because React draws a link hidden until the content beside it is loaded.
const resizeObserver = new ResizeObserver(() => {
  const link = document.querySelector(".st-key-menu a[aria-current=page]"), menu = link?.closest(".st-key-menu");
  if (!menu) return;
  const [linkBox, menuBox] = [link, menu].map((element) => element.getBoundingClientRect());
  menu.scrollLeft += linkBox.x + linkBox.width / 2 - menuBox.x - menuBox.width / 2;
});

let currentPage = "";

export function watchMenu(app, page, search) {
  const isFirst = !currentPage;
  currentPage = page;
  markCurrent(app, page);
  if (!isFirst) return;
  // Links may be added later, and stay on the next page.
  const observer = new MutationObserver(() => markCurrent(app, currentPage));
  observer.observe(app.querySelector(".st-key-page_head") ?? app, { childList: true, subtree: true });
  for (const type of ["pointerdown", "focusin"]) {
    app.addEventListener(type, ({ target }) => {
      const link = target.closest("[data-testid=stPageLink-NavLink]");
      if (link) link.href = fullAddress(link, search(), link.closest(".st-key-menu"));
    }, { capture: true });
  }
  // Streamlit ignores modifier keys and opens the page in this tab; leave these clicks to the browser.
  app.addEventListener("click", (event) => {
    const { target, ctrlKey, metaKey, shiftKey } = event;
    if ((ctrlKey || metaKey || shiftKey) && target.closest("[data-testid=stPageLink-NavLink]")) event.stopPropagation();
  }, { capture: true });
}
