"""What one reads off a cell or a map: its arithmetic, tables, the glossary.

Begin with `explanation.explain`: the `explanation.Explanation` of one cell, which steps write with `explanation.ExplanationBuilder`. Maps that
are no step of the formula are `derived.DerivedMap`; `tables` are the same numbers for pandas; `alignment.align` pairs the tokens of two texts.
"""
