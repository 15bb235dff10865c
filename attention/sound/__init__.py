"""Sounds as a medium: read from a file or from samples, placed in seconds, and drawn as their spectrogram.

Begin with `medium.Sounds`, the declaration that the trunk asks, `sound_file.Sound`, from bytes to samples, and `reader.SoundReader`, from samples to
tokens with places.
"""
