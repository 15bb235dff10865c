"""Text, arrays and pictures that users bring, read within bounds, and written."""
