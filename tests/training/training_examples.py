"""The sources that tests of explanations also try, where this feature is here."""

from attention.patching.intervention import parse_codes
from attention.training import Trained

SOURCES = {
    **{f"trained {task}": Trained(task, steps=4) for task in ("reverse", "induction", "dates", "lookup")},
    "trained, changed": Trained("induction", steps=4, interventions=parse_codes("0.0.mean0.5;1.0.w2,1=0.25r")),
}
