"""The Python that copied programs and notebooks consist of: a module for each part, from the inputs to the output.

Begin with `literals.Snippet`, some lines with their imports. `attention.export.program` puts the snippets of a trace together.
"""
