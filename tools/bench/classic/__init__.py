"""The comparisons that everybody knows, sample by sample, in one thread: ``tools/bench/run classic``.

- `decoding`: libraries that decode JPEG files, whole and to random crops.
- `augmenting`: Albumentations beside torchvision's transforms.
- `rounds`: how both are timed.
- `study`: runs them and gives the section.
"""
