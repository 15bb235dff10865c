"""Every head over many texts, on the page Heads."""

from __future__ import annotations

from pages.ui.corpus import chosen_result, many_texts
from pages.ui.features import Panels, Sourceless

PANELS = Panels(
    missing=chosen_result.missing_words,
    sourceless=Sourceless(
        applies=chosen_result.is_many,
        intro="What each head does over many texts, and by chance. Click a head for its page.",
        choose=many_texts.heads_over,
    ),
)
"""What this feature adds to the pages."""
