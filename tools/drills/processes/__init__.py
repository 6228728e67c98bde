"""Processes that drills start.

- `acts`: what two accounts of a machine do.
- `apart`: cases that are tried in a process of their own, with little memory and little time.
- `blows`: what is done to processes of a run, which of them are left, and what came of it.
- `machine`: two accounts of a machine, and processes of theirs.
- `odd_disk`: a file system whose names have no case, or that is slow.
- `watch`: what they hold while a run goes on, and whether that grows.
"""
