"""The PNG encoder: a decoded picture has the encoded pixels."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import script_address

pytestmark = pytest.mark.browser

ENCODED = """async ([path, columns, rows, native]) => {
  if (!native) delete Uint8Array.prototype.toBase64;  // as in an older browser
  const { pngUrl } = await import(path);
  const colors = Uint8Array.from({ length: 3 * 256 }, (_, i) => (i * 31) & 255), shades = Uint8Array.from({ length: columns * rows }, (_, i) => (i * 17) & 255);
  const image = new Image();
  image.src = pngUrl(shades, columns, colors);
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: columns, height: rows }), context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const decoded = context.getImageData(0, 0, columns, rows).data;
  const wanted = (shade, channel) => (shade === 0 ? 0 : channel === 3 ? 255 : colors[3 * shade + channel]);
  return [image.naturalWidth, image.naturalHeight, decoded.findIndex((byte, i) => byte !== wanted(shades[i >> 2], i & 3))];
}"""


@pytest.mark.sample(1)
@pytest.mark.parametrize("native", [True, False])
def test_png_paints_every_cell_in_its_colour_and_leaves_gaps(browser: Any, server: str, native: bool) -> None:
    page = browser.new_page()
    page.goto(f"{server}/_stcore/health")
    try:
        for columns, rows in ((1, 1), (3, 2), (256, 256), (64, 255), (65, 252), (7, 2000)):
            assert page.evaluate(ENCODED, [script_address(server, "png"), columns, rows, native]) == [columns, rows, -1]
    finally:
        page.close()
