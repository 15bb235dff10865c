"""Interventions on heads inside a model (ablation and activation patching).

Begin with `intervention.Intervention`, a value with a code in links. `forward.PatchedForward` changes the output of heads before W_O, and the
model itself computes all that follows.
"""
