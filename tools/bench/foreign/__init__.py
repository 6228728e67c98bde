"""Data of other libraries, read where they lie: ``tools/bench/run foreign``.

- `corpora`: photographs and small values, and in which formats they lie.
- `stores`: writes them, each format by its own library where there is one; `written`: the others.
- `pairs`: in place beside the same samples packed by us, epoch by epoch in turns.
- `readers`: the libraries' own readers, and ours.
- `scans`: finding the samples, the size of a catalogue, the second start of a large one.
- `measured`: what was measured, cell by cell; `bars`: what has to be reached.
- `study`: runs it all; `page`: the section.
"""
