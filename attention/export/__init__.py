"""Exports: the numbers, the program, and figures for a paper."""
