"""Heads of trained models that show something, with their numbers, so that they need no model and no download."""

from __future__ import annotations

from attention.examples.example import EXAMPLES, Example

__all__ = ["EXAMPLES", "Example"]
