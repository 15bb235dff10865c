"""Real models: finding, loading and recording them. The only room that imports transformers, which it does at first use.

Begin with `library.LIBRARY`, which loads a model folder once for all, and `forward_pass`, which makes layers of one pass. `recorder` stands in
the model's own attention; `residual_stream` and `lm_head` read what comes after it.
"""
