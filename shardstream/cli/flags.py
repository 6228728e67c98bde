"""Flags that several verbs have in common, each with its help; the verb gives the default."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Optional

import typer


class Format(StrEnum):
    """Choices of ``--format``."""

    TAR = "tar"
    RECORD = "record"

    @property
    def framing(self) -> Literal["tar", "record"]:
        """As options take it."""
        return "tar" if self is Format.TAR else "record"


class Jpeg(StrEnum):
    """Choices of ``--jpeg``."""

    ADDRESSABLE = "addressable"
    KEEP = "keep"


ShardSize = Annotated[str, typer.Option(help="Size to aim for: 256MB, 256MiB, or bytes.", metavar="SIZE")]
Seed = Annotated[int, typer.Option(help="Of the shuffle.", min=0)]
SegmentWidth = Annotated[int, typer.Option(help="Pixels across of what can be decoded alone.", metavar="PIXELS")]
Strip = Annotated[bool, typer.Option("--strip", help="Drop EXIF, profiles and comments of JPEG files.")]
MaxSide = Annotated[
    Optional[int],  # noqa: UP045 - Typer reads this when it runs, also old ones
    typer.Option(help="Make larger images smaller, to this longer side; they are encoded anew.", metavar="PIXELS"),
]
Quality = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(help="Of images made smaller, 1 to 100. (default: 90)", metavar="N"),
]
MaxPixels = Annotated[int, typer.Option(help="Reject images of more pixels.", metavar="PIXELS")]
TransformName = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="Function of a sample, by module and name; None drops it.", metavar="MODULE:NAME"),
]
Checksums = Annotated[bool, typer.Option(help="Store a checksum of each value.")]
KeyTable = Annotated[bool, typer.Option(help="Write a table of the keys, which finds samples by key at once.")]
Workers = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(help="Processes; 0 works without any. (default: one a core)", min=0, metavar="N"),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace another data set in DEST, once the new one is complete.")
]
Json = Annotated[bool, typer.Option("--json", help="Report as one line of JSON.")]
JsonLines = Annotated[
    bool, typer.Option("--json", help="A line of JSON every ten seconds, and the report as the last one.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
