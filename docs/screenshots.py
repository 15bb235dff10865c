"""Takes the screenshots of the documents from the running app, and the README's film: python docs/screenshots.py http://localhost:8501 [name …]."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Container
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

INDUCTION = "source=trained&task=induction&layer=1&q=16&k=4"
SHOTS = {
    "explore": ("/", 1280, 720, "light"),
    "model": ("/?source=model&layer=0&head=2&view=factors&q=4&k=3", 1360, 760, "light"),
    "compare": (f"/?{INDUCTION}&compare=interventions%3D0.0.zero", 1360, 900, "dark"),
    "circuits": (f"/heads?{INDUCTION}&heads_inside=true", 1360, 1420, "light"),
    "many_texts": ("/heads?heads_over=many+texts&heads_result=example", 1360, 900, "light"),
    "all_heads": ("/heads?source=model&layer=0&head=2", 1360, 1000, "dark"),
    "heads": ("/heads?mask=causal&heads=8&head=2&q=4&k=2", 1360, 920, "dark"),
    "masks": ("/?explore_mask=true&mask=causal&q=4&k=2", 1360, 800, "light"),
    "picture": (
        "/?source=trained&task=shapes&input=red+circle+0,1;+blue+square+1,4;+green+triangle+3,0;+red+ring+3,3&view=factors&q=5&k=24",
        1360,
        900,
        "light",
    ),
    "phone": ("/", 390, 844, "light"),
}
WITHIN = {"model": ".steps", "picture": ".steps", "masks": ".st-key-masks_maps"}
"""What a shot shows of its page; nothing: the window."""
FILM = "induction"
STEPS = (0, 10, 20, 30, 40, 50, 60, 80, 100, 150, 200)


def shoot(chromium: Browser, address: str, path: str, size: tuple[int, int], scheme: str, within: str = "") -> bytes:
    """A picture of a page, or of what is `within` it."""
    page = chromium.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)  # type: ignore[arg-type]  # light or dark
    page.goto(address + path)
    page.wait_for_selector(".figures .js-plotly-plot .main-svg", timeout=60_000)
    page.wait_for_timeout(4000)
    taken = page.locator(within).first.screenshot() if within else page.screenshot()
    page.close()
    return taken


def main(address: str, wanted: Container[str]) -> None:
    """Takes every shot that is wanted and writes it beside this file."""
    beside = Path(__file__).with_name
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (path, width, height, scheme) in SHOTS.items():
            if name in wanted:
                beside(f"{name}.png").write_bytes(
                    shoot(chromium, address, path, (width, height), scheme, WITHIN.get(name, ""))
                )
        if FILM in wanted:
            address_of = "/training?train_task=induction&train_at={}"
            taken = [shoot(chromium, address, address_of.format(at), (1360, 800), "dark", ".figures") for at in STEPS]
            frames = [Image.open(io.BytesIO(one)).convert("RGB").quantize(96) for one in taken]
            lasts = [1200, *[500] * (len(frames) - 2), 3000]  # milliseconds
            frames[0].save(beside(f"{FILM}.gif"), save_all=True, append_images=frames[1:], duration=lasts, loop=0)
        chromium.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or [*SHOTS, FILM])
