"""What single pages teach."""
