"""Dtypes of arrays in MDS. Readers in place import this module alone."""

from __future__ import annotations

CODES = {f"uint{bits}": bits for bits in (8, 16, 32, 64)}
CODES |= {f"int{bits}": bits + 1 for bits in (8, 16, 32, 64)} | {f"float{bits}": bits + 2 for bits in (16, 32, 64)}
"""What stands for a dtype before an array: its bits, and one more of signed integers, two of floats."""
DTYPES = {code: name for name, code in CODES.items()}
"""The dtypes by what stands for them."""
