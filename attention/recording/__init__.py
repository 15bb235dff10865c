"""The attention of any PyTorch code: what a pass multiplies, followed from product to softmax to product, as a trace."""
