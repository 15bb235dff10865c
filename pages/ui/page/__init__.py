"""What the pages share: the frame around a page, its figures, and the panels below them."""
