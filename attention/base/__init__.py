"""What everything needs and that knows nothing of attention: errors, tokens, printed numbers, knobs, the cache."""
