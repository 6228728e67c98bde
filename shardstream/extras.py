"""Other packages: imports that say what to install, what is used of their insides; and our package of formats."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from shardstream.errors import MissingExtraError

NEWEST_TESTED = {"Python": "3.13", "torch": "2.14"}
"""Newest versions that tests ran with, see docs/dev/insides.md. `shardstream doctor` warns of newer ones."""
BUILT_IN = "shardstream.formats"
"""The package that reads formats of other libraries. It is above all others, so they load it by this name."""


def built_in(module: str) -> ModuleType:
    """Import a module of `BUILT_IN`, such as ``"registry"``."""
    return importlib.import_module(".".join((BUILT_IN, module)))


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


def private(owner: Any, name: str, package: str) -> Any:
    """Take a private attribute of another package, or say that this version of it lacks one.

    Args:
        owner: The module, class or object that has it.
        name: Its name; ``docs/dev/insides.md`` lists each that is used.
        package: The package whose version decides.

    Raises:
        MissingExtraError: There is no such attribute.
    """
    try:
        return getattr(owner, name)
    except AttributeError as error:
        raise lacking(package, name) from error


def lacking(package: str, name: str) -> MissingExtraError:
    """The error where an installed version of a package lacks what is used of its insides."""
    from importlib import metadata  # takes a quarter of the time that the command starts in

    newest = NEWEST_TESTED.get(package)
    return MissingExtraError(
        f"{package} {metadata.version(package)} lacks an internal name that shardstream uses: {name}",
        hint=f'pip install "{package}=={newest}.*"' if newest else f"install an older version of {package}",
    )
