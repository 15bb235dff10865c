"""Five published notebooks as a source."""

SENTENCES = ("I wonder what will come next!", "This is a basic example paragraph.", "Hello, what is a basic split?")
"""The input of the fourth notebook."""
