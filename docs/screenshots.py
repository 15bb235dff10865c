"""Takes the screenshots of the documents from the running app, and the README's films: python docs/screenshots.py http://localhost:8501 [name …]."""

from __future__ import annotations

import io
import re
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
    "sound": ("/?source=model&model=tiny-whisper&layer=5&q=8&k=23", 1360, 900, "light"),
    "phone": ("/", 390, 844, "light"),
}
WITHIN = {"model": ".steps", "picture": ".steps", "masks": ".st-key-masks_maps"}
"""What a shot shows of its page; nothing: the window."""
FILM = "induction"
STEPS = (0, 10, 20, 30, 40, 50, 60, 80, 100, 150, 200)
SHOW_ME = "show_me"
SCENES = Path(__file__).parents[1] / "attention" / "pictures" / "figure" / "screen_numbers.js"
"""The script that says how many seconds each scene of the first screen's film has."""
FRAMES = 8  # a second


def shoot(chromium: Browser, address: str, path: str, size: tuple[int, int], scheme: str, within: str = "") -> bytes:
    """A picture of a page, or of what is `within` it."""
    page = chromium.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)  # type: ignore[arg-type]  # light or dark
    page.goto(address + path)
    page.wait_for_selector(".figures .js-plotly-plot .main-svg", timeout=60_000)
    page.wait_for_timeout(4000)
    taken = page.locator(within).first.screenshot() if within else page.screenshot()
    page.close()
    return taken


def show_me(chromium: Browser, address: str, path: Path) -> None:
    """The film of the first screen as an animated WebP: it begins with the screen at rest, and ends with the new row."""
    page = chromium.new_page(viewport={"width": 1280, "height": 720}, color_scheme="light")
    page.goto(address)
    page.wait_for_selector(".figures .js-plotly-plot .main-svg", timeout=60_000)
    page.wait_for_timeout(4000)
    scenes = [float(seconds) for seconds in re.findall(r"seconds: ([\d.]+)", SCENES.read_text())]
    moments = [
        i + frame / (seconds * FRAMES) for i, seconds in enumerate(scenes) for frame in range(int(seconds * FRAMES))
    ]
    frames: list[bytes] = []
    lasts: list[int] = []
    for moment in (4, *moments, 5):
        page.evaluate("(t) => document.querySelector('#root .screen').firstScreen.seek(t)", moment)
        page.wait_for_timeout(150 if moment % 1 < 0.05 else 30)  # a scene begins with another map
        frame = page.screenshot()
        if frames and frames[-1] == frame:
            lasts[-1] += 1000 // FRAMES
        else:
            frames.append(frame)
            lasts.append(1000 // FRAMES)
    lasts[0], lasts[-1] = 1500, 2500  # milliseconds
    pictures = [
        Image.open(io.BytesIO(frame)).convert("RGB").resize((960, 540), Image.Resampling.LANCZOS) for frame in frames
    ]
    # Whole pictures only at the beginning: most of a frame is the one before it.
    pictures[0].save(
        path,
        save_all=True,
        append_images=pictures[1:],
        duration=lasts,
        loop=0,
        quality=55,
        method=6,
        kmin=9000,
        kmax=9001,
    )
    page.close()


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
        if SHOW_ME in wanted:
            show_me(chromium, address, beside(f"{SHOW_ME}.webp"))
        if FILM in wanted:
            address_of = "/training?train_task=induction&train_at={}"
            taken = [shoot(chromium, address, address_of.format(at), (1360, 800), "dark", ".figures") for at in STEPS]
            frames = [Image.open(io.BytesIO(one)).convert("RGB").quantize(96) for one in taken]
            lasts = [1200, *[500] * (len(frames) - 2), 3000]  # milliseconds
            frames[0].save(beside(f"{FILM}.gif"), save_all=True, append_images=frames[1:], duration=lasts, loop=0)
        chromium.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or [*SHOTS, SHOW_ME, FILM])
