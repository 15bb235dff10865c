"""Sounds as a medium: read from a file or from samples, placed in seconds, and drawn as their spectrogram.

from attention import Model, sound
trace = Model("whisper-base", sound="harbor.wav").trace()  # its decoder writes the words; or reads them: text2="a quiet harbor"
trace.tokens[40].place  # SoundPlace(start=0.8, stop=0.82)
sound.word_times(trace)  # when each token of the decoder was said, by cross-attention

Begin with `medium.Sounds`, the declaration that the trunk asks, `sound_file.Sound`, from bytes to samples, and `reader.SoundReader`, from samples to
tokens with places.
"""

from attention.sound.alignment import alignment_heads, word_times
from attention.sound.places import SoundPlace

__all__ = ["SoundPlace", "alignment_heads", "word_times"]
