"""Takes the README's screenshots of the running app: python docs/screenshots.py http://localhost:8501."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

SHOTS = {
    "lab": ("/?mask=causal&q=4&k=2", 1360, 1094, "light"),
    "model": ("/?source=model&layer=0&head=2&view=factors&q=4&k=3", 1360, 760, "light"),
    "all_heads": ("/heads?source=model&layer=0&head=2", 1360, 1000, "dark"),
    "heads": ("/heads?mask=causal&heads=8&head=2&q=4&k=2", 1360, 920, "dark"),
    "masks": ("/masks?mask=causal&q=4&k=2", 1360, 800, "light"),
    "phone": ("/?mask=causal&q=4&k=2", 390, 844, "light"),
}


def main(address: str) -> None:
    """Takes every shot of `SHOTS` and writes it beside this file."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (path, width, height, scheme) in SHOTS.items():
            page = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]  # light or dark
            page.goto(address + path)
            page.wait_for_selector(".js-plotly-plot .main-svg", timeout=60_000)
            page.wait_for_timeout(2000)
            page.screenshot(path=Path(__file__).with_name(f"{name}.png"))
        chromium.close()


if __name__ == "__main__":
    main(sys.argv[1])
