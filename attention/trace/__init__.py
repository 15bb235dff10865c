"""What a source returns: layers with their steps, and the residual stream behind them."""
