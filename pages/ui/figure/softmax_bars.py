"""The component that shows the softmax of a row of numbers, with a temperature slider that works in the browser."""

from __future__ import annotations

from typing import Any

from pages.ui.server import assets

_HTML = """
<div class="softmax-bars">
  <label>Temperature <span>low</span> <input type="range"> <span>high</span> <output></output></label>
  <div class="lines"></div>
  <p role="status"></p>
</div>
"""
_STYLE = """
.softmax-bars { font-size: 0.875rem; font-variant-numeric: tabular-nums; }
.softmax-bars label { display: flex; flex-wrap: wrap; gap: 0.3rem 0.6rem; align-items: center; margin-bottom: 0.5rem; }
.softmax-bars input { flex: 1; min-width: 8rem; max-width: 24rem; accent-color: var(--st-primary-color); touch-action: pan-y; }
.softmax-bars input:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 2px; }
.softmax-bars output { min-width: 2.6rem; color: var(--st-primary-color); font-weight: 600; }
.softmax-bars .lines { display: grid; gap: 0.15rem 2rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
.softmax-bars .lines.few { grid-template-columns: minmax(0, 50rem); }
.softmax-bars .line { display: grid; grid-template-columns: 3.5rem 8.5rem 1fr 4.5rem; gap: 0.5rem; align-items: center; }
.softmax-bars .line > :not(.bar) { text-align: right; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.softmax-bars .bar { height: 1.1rem; background: var(--st-secondary-background-color); border-radius: 2px; }
.softmax-bars .bar i { display: block; height: 100%; background: #3d8bc9; border-radius: 2px; }
.softmax-bars p { margin: 0.5rem 0 0; font-size: inherit; }
@media (max-width: 640px) { .softmax-bars .line { grid-template-columns: 3rem 7.5rem 1fr 4.2rem; gap: 0.3rem; } }
@media (forced-colors: active) { .softmax-bars .bar i { background: CanvasText; forced-color-adjust: none; } }
"""


def component() -> Any:
    """Returns the function that mounts the component."""
    return assets.component("softmax_bars", "attention_softmax_bars", _HTML, _STYLE)
