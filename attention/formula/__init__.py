"""What attention is: its steps, its variants, its knobs, and what changes a head."""
