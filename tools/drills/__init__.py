"""What takes too long for a test: each is a command of its own, ``tools/drills/NAME``, that says what it tries.

What several share:

- `processes/`: what is done to processes, what they hold, and cases that are tried apart.
- `named`: drills that are several things by name.
- `writing`: small data sets, and every verb that writes; what is wrong with what a run leaves.
- `training`: training under torchrun, whose processes are struck.
"""
