"""Five published notebooks as a source."""
