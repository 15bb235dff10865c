"""Heads of trained models that show something, with their numbers: what the first screen opens on, without a model and without a download."""

from __future__ import annotations

from attention.examples.example import EXAMPLES, Example

__all__ = ["EXAMPLES", "Example"]
