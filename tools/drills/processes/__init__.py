"""Processes that drills start.

- `apart`: cases that are tried in a process of their own, with little memory and little time.
- `blows`: what is done to processes of a run, which of them are left, and what came of it.
- `odd_disk`: a file system whose names have no case, or that is slow.
- `watch`: what they hold while a run goes on, and whether that grows.
"""
