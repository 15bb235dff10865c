"""The copied program, and a trace packed for a page without a server.

Begin with `program.python`, a trace as some twenty lines of torch, and `packing.pack_trace`, a trace as bytes for a notebook or the demo.
"""
