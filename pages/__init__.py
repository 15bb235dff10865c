"""The pages beside the Lab: short scripts that say what to show. No maths."""
