"""Pictures as a medium: read, placed, and all heads drawn over them.

Begin with `medium.Pictures`, the declaration that the trunk asks, and `reader.PictureReader`, from pictures to tokens with places. A row of
weights over a picture is `attention.pictures.over_picture`.
"""
