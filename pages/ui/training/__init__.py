"""The film of a training."""
