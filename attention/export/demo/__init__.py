"""A demo of the Lab as a folder of static files, which any web space can serve and a browser opens from a USB stick too.

    python -m attention.export.demo site/ --lab https://lab.example.org

Each state is a link of the Lab (`states.py`), worked out once and packed (`packing.py`, `film.py`). The page draws it with the
Lab's own scripts (attention/pictures/figure), which `bundling.py` makes one classic script of: a module does not load from a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from attention.errors import AttentionError, ModelError
from attention.export.demo import bundling
from attention.export.demo.film import packed_film
from attention.export.demo.packing import packed
from attention.export.demo.pool import as_script
from attention.export.demo.states import STATES, State
from attention.pictures.message import SCRIPTS

PLOTLY = "plotly.js"
_LICENSES = "LICENSES.txt"
_MODELS = "all-MiniLM-L6-v2, of which states/previous.js and states/next.js have weights and numbers: Apache-2.0.\n\nplotly.js:\n\n"


def write(
    folder: Path, lab: str = "", tell: Callable[[str], None] = print, states: Sequence[State] = STATES
) -> dict[str, int]:
    """Writes the demo into a folder; by its name, how many bytes each file has.

    Args:
        folder: made where it is not there; what else is in it stays.
        lab: the address of a full Lab, which the page then links to.
        tell: gets a sentence for every state that could not be written.
        states: what is shown.

    Raises:
        AttentionError: a state is wrong, or there is none.
    """
    written: dict[str, bytes] = {}
    shown = []
    for state in states:
        try:
            content = packed_film(state) if state.film else packed(state)
        except ModelError as error:
            tell(f"The demo is written without “{state.title}”: {error}")
            continue
        shown.append(state)
        written[f"states/{state.name}.js"] = as_script(state.name, content)
    if not shown:
        raise AttentionError("The demo has no state left to show: bring the models that they need, or choose others.")
    about = {
        "lab": lab,
        "states": [{"name": one.name, "title": one.title, "sentence": one.sentence} for one in shown],
    }
    written["index.html"] = bundling.page(json.dumps(about, ensure_ascii=False))
    written[PLOTLY] = (SCRIPTS / "vendor" / "plotly-cartesian.min.js").read_bytes()
    written[_LICENSES] = _MODELS.encode() + (SCRIPTS / "vendor" / "LICENSE").read_bytes()
    for name, content in written.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return {name: len(content) for name, content in sorted(written.items())}
