"""Real models: finding, loading and recording them. The only package that imports transformers, which it does at first use."""
