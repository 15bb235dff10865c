"""The arithmetic of one cell, as numbers and as text."""
