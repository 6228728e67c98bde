"""What is looked at. Each module has a function ``run`` that takes a `Setting` and yields its `Row`.

- `machine`: processor, GPU, versions, bandwidths.
- `tests`: the tests that are marked ``gpu``.
- `recipes`: the programs of ``examples/``, killed and gone on with.
- `kinds`: batches of every kind, and those that are refused.
- `ahead`: device memory and time where the host runs ahead.
- `steps`: a training step beside synthetic data and other prefetchers.
- `bins`: documents in bins: kept apart by kernels, a training step, tokens a second.
- `delivery`: images a second that reach the device, with nobody there who trains.
- `augmentation`: images a second by operation, beside the CPU and peers.
- `slabs`: whether page-locking slabs of shared memory would pay.
- `rectangles`: cut JPEG rectangles, decoded on the GPU.
"""

from __future__ import annotations

TITLES = {
    "machine": "The machine",
    "tests": "Tests marked `gpu`",
    "recipes": "Recipes, killed and gone on with",
    "kinds": "Batches of every kind",
    "ahead": "A host that runs ahead of its device",
    "steps": "A training step",
    "bins": "Documents in bins",
    "delivery": "What reaches the device",
    "augmentation": "Augmentation of batches",
    "slabs": "Copies from shared slabs",
    "rectangles": "Cut JPEG rectangles, decoded on the GPU",
}
