"""Text, arrays and pictures that users bring, read within bounds, and written.

Begin with `labelled.open_file`, which takes any file but pictures. Each file is untrusted: its headers come first, then a plan that says what
each array is (`plan.Plan`), and an array only when a layer is read. Pasted text is read by `matrix_text.parse_text`, a picture by `picture`.
"""
