"""Figures of a trace: maps, charts, and the data that a page needs to draw them itself."""
