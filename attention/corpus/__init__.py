"""Every head of a model over many texts: mean, spread, histogram and examples of each metric, with its null and its controls.

`python -m attention.corpus MODEL TEXTS… -o heads/` computes it. Texts are cut into chunks; one function computes one chunk and writes one part
into a folder, whoever calls it; the parts are merged into one table.
"""
