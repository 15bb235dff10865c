"""Fields and panels of pictures."""
