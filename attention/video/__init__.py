"""Videos as a medium: files as frames, and the frames that a model reads as tokens with places.

Begin with `medium.Videos`, the declaration that the trunk asks, and `reader.VideoReader`, from a video to tokens.
"""
