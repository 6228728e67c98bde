"""What takes too long for a test: each is a command of its own, ``tools/drills/NAME``, that says what it tries.

What several share:

- `writing`: small data sets, and every verb that writes; what is wrong with what a run leaves.
- `blows`: what is done to processes of a run, which of its processes are left, and what came of it.
- `training`: training under torchrun, whose processes are struck.
"""
