"""Interventions on heads inside a model (ablation and activation patching): their codes, and the changed forward pass."""
