"""What a person pastes or opens, read into matrices."""
