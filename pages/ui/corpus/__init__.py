"""Panels about every head over many texts."""
