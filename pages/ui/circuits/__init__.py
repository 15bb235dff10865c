"""Panels about what heads write and read."""
