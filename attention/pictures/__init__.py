"""Figures of a trace: maps, charts, and the data that a page needs to draw them itself.

Begin with `marks`: a figure is a frame and marks, as Plotly JSON with metadata (`message_contract.Meta`); `heatmap.heatmap_json` draws a map. `message.pack` sends figures to the scripts in
figure/, which draw them. Colours and sizes have their names in `look`, scales in `scales`; `first_screen` is the large map of Explore.
"""
