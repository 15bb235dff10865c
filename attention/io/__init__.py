"""Reading and writing: text that users paste, and arrays in files."""
