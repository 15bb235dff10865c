"""Real models: found, loaded, and recorded from the inside. The only room that imports transformers, and at first use."""
