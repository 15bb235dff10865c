"""What one sees of a trace: maps, curves, and what a page draws by itself."""
