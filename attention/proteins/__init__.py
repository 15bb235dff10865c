"""Proteins: sequences of residues as the text of a model such as ESM-2, and the contacts of residues that its heads predict together.

`contacts(trace)` has the probability of every pair, `contact_table(trace)` the likeliest pairs, and `contact_terms(trace, i, j)` what each head adds
to one. Begin with `sequences.read`, from what a user pastes to letters, and `contact_map.contacts`.
"""

from attention.proteins.contact_map import contact_table, contact_terms, contacts

__all__ = ["contact_table", "contact_terms", "contacts"]
