"""Hostile inputs in a real Chromium: none may be executed, fetched, or become an element of the page."""

from __future__ import annotations

import re
import shutil
from urllib.parse import quote

from playwright.sync_api import BrowserContext, Error, Page, sync_playwright

from benchmarks.hostile import Hostile
from benchmarks.server import Server

_TELLING = re.compile(r"pwned|attacker\.invalid", re.IGNORECASE)
# Elements that came out of an input. What a field holds is its value, which no browser reads as anything else.
_INTRUDERS = """() => {
  const found = [];
  const acting = ['href', 'xlink:href', 'src', 'srcset', 'srcdoc', 'action', 'formaction', 'style', 'poster', 'data', 'background', 'content'];
  const roots = [document];
  for (const root of roots) for (const element of root.querySelectorAll('*')) {
    if (element.shadowRoot) roots.push(element.shadowRoot);
    for (const { name, value } of element.attributes)
      if ((name.startsWith('on') && /pwned/.test(value)) || (acting.includes(name) && /attacker\\.invalid|pwned=|^\\s*javascript:/i.test(value)))
        if (!(name === 'href' && new URL(value, location.href).origin === location.origin))  // our own links carry the state
          found.push(element.outerHTML.slice(0, 300));
    if (/^(script|style)$/i.test(element.tagName) && /window\\.pwned|attacker\\.invalid/.test(element.textContent))
      found.push(element.outerHTML.slice(0, 300));
  }
  if (window.pwned) found.push('window.pwned is ' + window.pwned);
  if (document.querySelector('[data-testid=stException]')) found.push('an exception is shown');
  if (/could not be drawn/.test(document.body.innerText)) found.push('a picture could not be drawn');
  return found;
}"""
_DRAWN = "[data-testid=stAlert], [data-testid=stDataFrame], .figures, .lesson"
_PAINTED = "() => [...document.querySelectorAll('.figures, .lesson')].every(({ figureState }) => figureState?.painted && figureState.painted === figureState.figures)"


def paint(server: Server, inputs: list[Hostile], how_many: int, broken: list[str]) -> int:
    """Opens up to `how_many` inputs with code or addresses, adds the failures to `broken`, and returns how many it opened."""
    telling = [hostile for hostile in inputs if _TELLING.search(str(hostile)) and len(_address(hostile)) < 30_000]
    kinds = sorted({hostile.kind for hostile in telling})
    by_kind = {kind: [hostile for hostile in telling if hostile.kind == kind] for kind in kinds}
    # Equally many of each kind, from all parts of its list.
    chosen = [
        hostile
        for of_kind in by_kind.values()
        for hostile in of_kind[:: max(1, len(of_kind) * len(kinds) // how_many)][: how_many // len(kinds)]
    ]
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        context = browser.new_context(viewport={"width": 1440, "height": 1000}, bypass_csp=True)
        for hostile in chosen:
            broken += [f"in Chromium: {text} — {hostile}" for text in sorted(set(_open(context, server.base, hostile)))]
        browser.close()
    return len(chosen)


def _address(hostile: Hostile) -> str:
    knobs = "".join(f"&{key}={quote(str(value), errors='replace')}" for key, value in hostile.turn)
    return f"/{hostile.page}?{hostile.query}{knobs}"


def _open(context: BrowserContext, base: str, hostile: Hostile) -> list[str]:
    """The failures while this input was on the screen."""
    happened: list[str] = []
    page = context.new_page()
    allowed = (base, base.replace("http", "ws", 1), "blob:", "data:")
    page.on("dialog", lambda dialog: (happened.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
    page.on("popup", lambda popup: happened.append(f"a new window: {popup.url}"))
    page.on("pageerror", lambda error: happened.append(f"an error in the page: {error}"))
    page.on(
        "request",
        lambda request: request.url.startswith(allowed) or happened.append(f"fetched from outside: {request.url}"),
    )
    try:
        page.goto(base + _address(hostile))
        _settle(page)
        for key, name, data in hostile.files:
            box = page.locator(f".st-key-{key} input[type=file]")
            if key.startswith("matrices_") and not box.count():  # in the editor, which is folded while it is valid
                page.get_by_test_id("stExpander").filter(has_text="Your matrices").locator("summary").click()
                box.wait_for(state="attached", timeout=60_000)
            elif " " in key:  # named by its label
                box = page.get_by_test_id("stFileUploader").filter(has_text=key).locator("input[type=file]")
            box.set_input_files({"name": name, "mimeType": "application/octet-stream", "buffer": data}, timeout=30_000)
            page.wait_for_timeout(1000)  # a file that the page itself refuses starts no run to wait for
            _settle(page)
        maps = page.locator(".figures .js-plotly-plot .nsewdrag")
        if maps.count() and maps.first.is_visible():
            maps.first.hover(force=True)  # the hover of a map shows the tokens once more
            page.wait_for_timeout(150)
        happened += page.evaluate(_INTRUDERS)
    except Error as error:
        happened.append(f"{type(error).__name__}: {error.message[:300]}")
    page.close()
    return happened


def _settle(page: Page) -> None:
    page.wait_for_selector(_DRAWN, state="attached", timeout=60_000)
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=60_000)
    page.wait_for_function(_PAINTED, timeout=60_000)
