"""Two states compared: the partner of each row and column, and the differences."""
