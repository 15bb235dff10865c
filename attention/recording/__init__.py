"""The attention of any PyTorch code: what a pass multiplies, followed from product to softmax to product, as a trace.

Begin with `record.record`. `follower.Follower` sees each call to torch, `reading` decides what a found attention is, `layers` makes layers of it.
"""
