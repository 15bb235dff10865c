"""What attention is: its steps, its knobs, and the arithmetic between them."""
