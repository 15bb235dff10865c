"""Hostile inputs in a real Chromium: is anything of them executed, fetched, or made an element of the page?"""

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


def paint(server: Server, given: list[Hostile], how_many: int, broken: list[str]) -> int:
    """Opens so many of the inputs that would do something; how many it opened. What happened goes to `broken`."""
    telling = [one for one in given if _TELLING.search(str(one)) and len(_address(one)) < 30_000]
    kinds = sorted({one.kind for one in telling})
    by_kind = {kind: [one for one in telling if one.kind == kind] for kind in kinds}
    # As many of each kind, from all over its list.
    chosen = [
        one
        for mine in by_kind.values()
        for one in mine[:: max(1, len(mine) * len(kinds) // how_many)][: how_many // len(kinds)]
    ]
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        context = browser.new_context(viewport={"width": 1440, "height": 1000}, bypass_csp=True)
        for one in chosen:
            broken += [f"in Chromium: {text} — {one}" for text in sorted(set(_open(context, server.base, one)))]
        browser.close()
    return len(chosen)


def _address(one: Hostile) -> str:
    turned = "".join(f"&{key}={quote(str(value), errors='replace')}" for key, value in one.turn)
    return f"/{one.page}?{one.query}{turned}"


def _open(context: BrowserContext, base: str, one: Hostile) -> list[str]:
    """What must not have happened while this input was on the screen."""
    happened: list[str] = []
    page = context.new_page()
    own = (base, base.replace("http", "ws", 1), "blob:", "data:")
    page.on("dialog", lambda dialog: (happened.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
    page.on("popup", lambda popup: happened.append(f"a new window: {popup.url}"))
    page.on("pageerror", lambda error: happened.append(f"an error in the page: {error}"))
    page.on("request", lambda asked: asked.url.startswith(own) or happened.append(f"fetched from outside: {asked.url}"))
    try:
        page.goto(base + _address(one))
        _settle(page)
        for key, name, data in one.files:
            box = page.locator(f".st-key-{key} input[type=file]")
            if key.startswith("matrices_") and not box.count():  # in the editor, which is folded while it is valid
                page.get_by_test_id("stExpander").filter(has_text="Your matrices").locator("summary").click()
                box.wait_for(state="attached", timeout=60_000)
            elif " " in key:  # named by its label
                box = page.get_by_test_id("stFileUploader").filter(has_text=key).locator("input[type=file]")
            box.set_input_files({"name": name, "mimeType": "application/octet-stream", "buffer": data}, timeout=30_000)
            page.wait_for_timeout(1000)  # a file that the page itself refuses starts no run to wait for
            _settle(page)
        maps = page.locator(".js-plotly-plot .nsewdrag")
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
