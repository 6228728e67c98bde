"""Augmentation of batches, operation by operation, beside torchvision v2 and kornia: ``tools/bench/run augment``.

- `recipes`: the operations, in each library's words.
- `contenders`: what runs in the fresh processes.
- `study`: the table, its bar and its text.
"""
