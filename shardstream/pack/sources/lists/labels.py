"""Labels: integers, names, and the classes that names are looked up in."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from shardstream.errors import SourceError, UsageError, did_you_mean
from shardstream.options import Unknown
from shardstream.pack.sources.lists.records import parse_label, shown

_MOST_NAMES = 1_000_000

LabelMode: TypeAlias = Literal["int", "name"]

"""What becomes of samples whose class is not in the list."""


@dataclass(frozen=True)
class Classes:
    """The classes that there are.

    Attributes:
        names: Label i is ``names[i]``.
        unknown: What becomes of samples of other classes.
    """

    names: tuple[str, ...]
    unknown: Unknown = "error"

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Numbers by name.

        Raises:
            UsageError: Two classes have one name.
        """
        found: dict[str, int] = {}
        for number, name in enumerate(self.names):
            if found.setdefault(name, number) != number:
                raise UsageError(
                    f"classes {found[name]} and {number} have the same name {shown(name)}",
                    hint="names that become numbers must differ; labels that are numbers may have any names",
                )
        return found

    def number(self, label: str, **place: Any) -> int | None:
        """The number of the class that a label names; ``None`` where the sample is to be rejected.

        Args:
            label: The name.
            place: Where it stands, for the error.

        Raises:
            UsageError: It is not in the list, and such labels end the run; or two classes have one name.
        """
        number = self.numbers.get(label)
        if number is None and self.unknown == "error":
            raise unknown_class("label", label, self.names, **place)
        return number

    def mode(self, labels: Iterable[object]) -> LabelMode:
        """What the labels of a list are, where nobody said: as the first of them is.

        Raises:
            UsageError: They are integers, but names of classes are others: either may be meant.
        """
        first = next((label for label in labels if label is not None and str(label).strip()), None)
        if not isinstance(first, str):
            return "int"
        if _integer(first) is None:
            return "name"
        for number, name in enumerate(self.names):
            if _integer(name) not in (None, number):
                raise UsageError(
                    f"the label {shown(first)} may be a number or a name: class {number} is called {shown(name)}",
                    hint="labels='int' (--labels int) takes labels as numbers, labels='name' as names of classes",
                )
        return "int"


def check_class_count(count: int, **place: Any) -> None:
    """Refuse more names of classes than a manifest should hold; SourceError."""
    if count > _MOST_NAMES:
        raise SourceError(
            f"the labels have more than {_MOST_NAMES:,} names", hint="choose a column that holds classes", **place
        )


def unknown_class(what: str, name: str, names: Collection[str], **place: Any) -> UsageError:
    """The error for a class that is not in the list.

    Args:
        what: What bears its name: ``"label"``.
        name: The name.
        names: Those in the list.
        place: Where.
    """
    return UsageError(
        not_listed(what, name),
        hint=f"{did_you_mean(name, names)}add it to classes=, or leave such samples out: "
        "reading=SourceOptions(unknown='reject') (--unknown reject)",
        **place,
    )


def not_listed(what: str, name: str) -> str:
    """Why a sample is rejected whose class is not in the list."""
    return f"the {what} {shown(name)} is not in the list of classes"


def _integer(text: str) -> int | None:
    try:
        return parse_label(text)
    except ValueError:
        return None
