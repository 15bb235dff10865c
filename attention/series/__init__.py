"""Series over time as a medium: columns of numbers, of which a model reads patches along the time axis.

Begin with `medium.SeriesMedium`, the declaration that the trunk asks, and `reader.SeriesReader`, from columns to tokens with places.
"""
