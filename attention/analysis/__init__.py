"""What one reads off a trace: the arithmetic of a cell, tables, the glossary."""
