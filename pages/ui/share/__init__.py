"""What a person takes along: links, states, files."""
