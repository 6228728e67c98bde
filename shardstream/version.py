"""The version of the package, which `__init__` passes on: modules that need it alone import it from here."""

from __future__ import annotations

__version__ = "0.1.0"
