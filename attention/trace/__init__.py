"""What a source returns: layers with their steps, and the residual stream behind them.

Begin with `trace.Trace` and `layer.Layer`: a layer holds what its source recorded, and computes any other step when it is read. Costs are
estimated (`cost.Cost`) before memory is taken. The model behind a trace is `model_run.ModelRun`.
"""
