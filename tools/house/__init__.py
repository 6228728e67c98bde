"""What ``tools/check_house.py`` reads from the package's source.

- `package`: modules, functions, classes and imports of the package, and what of it is public.
- `checks`: what is wrong with them.
"""
