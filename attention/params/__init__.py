"""Parameters that a user can set: their ranges, and the knobs that declare them."""
