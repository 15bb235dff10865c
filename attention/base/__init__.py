"""What everything needs and that knows nothing of attention.

Begin with `errors.AttentionError`, whose message is the sentence that a page shows, and `knobs.Knob`, the declaration of a knob. A number
is printed by `printed.format_number` only, a token by `tokens.label`; `cache.CACHE` holds what was computed, `jobs` what runs elsewhere.
"""
