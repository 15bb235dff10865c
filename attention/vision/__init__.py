"""Pictures as input: read, placed, drawn under the weights.

Begin with `families.PICTURES`, the declarations of what a model does with a picture, and `reader.PictureReader`, from pictures to tokens with
places. `over_picture.over_picture_json` draws a row of weights over the picture.
"""
