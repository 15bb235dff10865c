"""The sources that tests of explanations, programs and files also try, where this feature is here."""

from attention.tutorials import NOTEBOOKS, Notebook

SOURCES = {name: Notebook(name) for name in NOTEBOOKS}
