"""What attention is: its steps, its variants, its knobs, and what changes a head.

Begin with `functions`, the formula as a reader of the paper would write it, and `steps.STEPS`, where each step stands with its numbers, its
explanation and its Python. A variant is a line of a table: `normalizers.NORMALIZERS`, `scores.SCORES`, `scores.BIASES`, `positions.POSITIONS`.
`formula.Formula` is the choice among them as a value; `names` has the words that links, files and pages share.
"""
