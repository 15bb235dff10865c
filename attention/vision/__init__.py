"""Pictures as input: read, placed, drawn under the weights."""
