"""Optional imports with a message that says what to install."""

from __future__ import annotations

import importlib
from types import ModuleType

from shardstream.errors import MissingExtraError


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import ``module``, or say which extra brings it.

    Args:
        module: Dotted module name, such as ``"PIL.Image"``.
        extra: The extra of this package that installs it.
        purpose: What it is needed for, as the end of "... is needed ".

    Raises:
        MissingExtraError: The module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"the package {module.split('.')[0]!r} is needed {purpose}, but cannot be imported ({error})",
            hint=f'pip install "shardstream[{extra}]"',
        ) from error
