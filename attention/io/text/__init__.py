"""Reads matrices from pasted text and uploaded files."""
