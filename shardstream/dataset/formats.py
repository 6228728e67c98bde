"""The one door to data in other libraries' formats: what is asked of them, and the package that reads them, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

from shardstream.extras import BUILT_IN
from shardstream.storage import PathOrUrl


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects below a place are meant, and how they are read. Saved states hold its attributes by name.

    Attributes:
        names: Names of objects below the place, or globs of them, in order; empty for all objects.
        source: Name of the format; ``None`` to recognize it.
        options: Of reading it: names and values; ``None`` for those of the catalog.
        chosen: Fields to read, each as what it is called and a column of the format; empty for all, ``None`` for those
            of the catalog.
    """

    names: tuple[str, ...] = ()
    source: str | None = None
    options: tuple[tuple[str, str], ...] | None = None
    chosen: tuple[tuple[str, str], ...] | None = None

    @classmethod
    def of(
        cls,
        names: tuple[str, ...],
        source: str | None,
        options: Mapping[str, str] | None,
        chosen: Mapping[str, str] | None = None,
    ) -> Selection:
        """The same, of options and fields as users write them."""
        pairs = None if options is None else tuple(sorted(options.items()))
        return cls(names, source, pairs, None if chosen is None else tuple(chosen.items()))

    @property
    def asks(self) -> bool:
        """Whether it says anything of how the objects are read."""
        return (self.source, self.options, self.chosen) != (None, None, None)


class Rooted(NamedTuple):
    """Files of another library, and how they are read.

    Attributes:
        place: The directory or URL that all lie below.
        names: Their names there.
        options: Of reading them.
    """

    place: PathOrUrl
    names: tuple[str, ...]
    options: Mapping[str, str] | None


class FormatsPackage(Protocol):
    """What is called of the package that reads other formats."""

    def find_dataset(self, address: Any) -> Any:
        """The `OpenedDataset` at a `DatasetAddress` where there is none of ours; raises as `DatasetAddress.open`."""

    def rooted(self, place: PathOrUrl, names: tuple[str, ...], options: Mapping[str, str] | None) -> Rooted:
        """The same files below a directory that also holds the ``root`` of the options; UsageError."""


def formats() -> FormatsPackage:
    """The package that reads other formats, imported at the first call."""
    return cast("FormatsPackage", import_module(BUILT_IN))
