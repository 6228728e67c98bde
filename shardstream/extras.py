"""Other packages: imports that say what to install, what is used of their insides; and our package of formats."""

from __future__ import annotations

import importlib
import json
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

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
            hint=install_command(extra),
        ) from error


def install_command(extra: str) -> str:
    """The command that installs an extra from where this package was installed: a checkout, a file, or an index.

    Args:
        extra: One of the extras of pyproject.toml.

    Example:
        >>> install_command("zarr").startswith("pip install ")
        True
    """
    from importlib import metadata  # as in `lacking`

    try:
        text = metadata.distribution("shardstream").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        text = None
    origin = json.loads(text) if text else {}
    url, vcs = origin.get("url"), origin.get("vcs_info")
    if url is None:
        return f'pip install "shardstream[{extra}]"'
    if origin.get("dir_info", {}).get("editable"):
        return f'pip install -e "{unquote(urlsplit(url).path)}[{extra}]"'
    if vcs is not None:
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return f'pip install "shardstream[{extra}] @ {url}"'


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
