// What Streamlit's page links lack to be a menu: their whole address, the page that is open, and tabs of their own.

// The address that a link stands for: Streamlit writes "heads" into it, and nothing at all for the first page, wherever
// it stands. What is long stays out of its state, and the address bar has it. `mask` is what a page about masks opens with.
function whole(link, search, inMenu, mask) {
  const [path, own] = link.getAttribute("href").split("?");
  const page = new URL(path || ".", location.href);
  const state = new URLSearchParams(search);
  if (!inMenu) for (const [key, value] of new URLSearchParams(own)) state.set(key, value);
  // A page about masks opens with one, as the server does it in this tab; an address without one means none.
  const toMasks = inMenu && page.pathname.endsWith("/masks");
  if (toMasks && !state.has("mask") && mask) state.set("mask", mask);
  page.search = state;
  return page.href;
}

function name(app, page) {
  const menu = app.querySelector(".st-key-menu");
  if (!menu) return;
  menu.setAttribute("role", "navigation");
  menu.setAttribute("aria-label", "Pages");
  for (const link of menu.querySelectorAll("a")) {
    const [was, is] = [link.ariaCurrent === "page", link.textContent.trim() === page];
    if (was === is) continue;
    link.ariaCurrent = is ? "page" : null;
    if (!is) continue;
    sizes.disconnect();
    sizes.observe(link);
    sizes.observe(menu);
  }
}

// On a phone the menu is wider than the page: it begins where the open page stands in it. Whenever one of them gets a
// size: React draws a link and hides it until what is beside it has been fetched.
const sizes = new ResizeObserver(() => {
  const link = document.querySelector(".st-key-menu a[aria-current=page]"), menu = link?.closest(".st-key-menu");
  if (!menu) return;
  const [one, all] = [link, menu].map((part) => part.getBoundingClientRect());
  menu.scrollLeft += one.x + one.width / 2 - all.x - all.width / 2;
});

let opened = ""; // the page that is open

export function menu(app, page, search, mask) {
  const first = !opened;
  opened = page;
  name(app, page);
  if (!first) return;
  // The links may come after this, and go along to the next page.
  const links = new MutationObserver(() => name(app, opened));
  links.observe(app.querySelector(".st-key-page_head") ?? app, { childList: true, subtree: true });
  for (const about of ["pointerdown", "focusin"]) {
    app.addEventListener(about, ({ target }) => {
      const link = target.closest("[data-testid=stPageLink-NavLink]");
      if (link) link.href = whole(link, search(), link.closest(".st-key-menu"), mask());
    }, { capture: true });
  }
  // Streamlit opens the page here whatever keys are held; the browser knows better.
  app.addEventListener("click", (event) => {
    const { target, ctrlKey, metaKey, shiftKey } = event;
    if ((ctrlKey || metaKey || shiftKey) && target.closest("[data-testid=stPageLink-NavLink]")) event.stopPropagation();
  }, { capture: true });
}
