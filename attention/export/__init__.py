"""What one takes along: the numbers, the program, pictures for a paper."""
