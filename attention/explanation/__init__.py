"""What one reads off a cell or a map: its arithmetic, tables, the glossary."""
