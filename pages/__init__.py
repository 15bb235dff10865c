"""The pages beside Explore: short scripts that say what to show. No maths."""
