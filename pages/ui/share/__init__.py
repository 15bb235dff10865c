"""Sharing: links, state files, pictures and questions."""
