"""Parquet from an untrusted source: a reader of the few encodings that `attention.corpus` writes, with a budget for everything it unpacks.

    table = ParquetTable.open(name, content, leaves, budget)
    table.leaf("mean", group, budget).numbers

pyarrow allocates what the headers of pages claim, so a file of some kB can take all memory: a page of zeros, a list of billions, a long text
repeated by its number in the dictionary. Here each of these is counted before it is made.
"""
