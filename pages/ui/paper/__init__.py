"""Pictures to take along."""
