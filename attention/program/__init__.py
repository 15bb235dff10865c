"""The Python that copied programs and notebooks consist of: a module for each part, from the inputs to the output."""
