"""HDF5: a data set is a field, and its first axis counts samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from shardstream.errors import UnsupportedError
from shardstream.formats.blocks import BlockList
from shardstream.formats.blocks.found_blocks import FoundBlocks
from shardstream.formats.contract import ObjectListing, Recognized, SourceFormat, SourceObject
from shardstream.formats.hdf5.chunks import add_blocks
from shardstream.formats.hdf5.columns import FileColumns
from shardstream.formats.hdf5.file import (
    SIGNATURE,
    WITHOUT_BLOCK,
    H5Dataset,
    datasets_of,
    end_of_file,
    without_blocks,
)
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import ScannedRows, numbered_keys, pieces
from shardstream.shards.field_names import usable_field

_SUFFIXES = (".h5", ".hdf5")
_USER_BLOCKS = tuple(512 << doubled for doubled in range(8))  # where else a file may begin
_SHOWN = 6


class Hdf5(SourceFormat):
    """``.h5`` and ``.hdf5`` files of data sets with a common first axis."""

    name: ClassVar[str] = "hdf5"
    title: ClassVar[str] = "HDF5"
    options: ClassVar[Mapping[str, str]] = {
        "fields": "data sets that are looked at, with commas between; all others are left out"
    }
    window: ClassVar[int] = 64 << 10

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        found = listing.only(*_SUFFIXES)
        if not found:
            return None
        if listing.first_that(found, lambda start: start.startswith(SIGNATURE)) is None:
            self._refuse_user_block(listing, found[0].path)
            return None
        wanted = _names(options.get("fields", "")) or {text.partition(":")[0] for text in listing.chosen.values()}
        about = {"fields": sorted(wanted)} if wanted else {}
        return Recognized(tuple(SourceObject(one.path, one.size, about) for one in found))

    def _refuse_user_block(self, listing: ObjectListing, path: str) -> None:
        start = listing.start(path, _USER_BLOCKS[-1] + len(SIGNATURE))
        at = next((at for at in _USER_BLOCKS if start[at : at + len(SIGNATURE)] == SIGNATURE), None)
        if at is not None:
            raise UnsupportedError(
                f"HDF5 begins at byte {at} of the file, behind a user block",
                url=listing.store.locate(path),
                hint=WITHOUT_BLOCK,
            )

    def blocks(self, data: ObjectBytes, about: Mapping[str, Any]) -> FoundBlocks | None:
        end = end_of_file(data)
        columns = _columns(data, end, about)
        if columns is None or not columns.blocked:
            return None
        out = BlockList()
        out.add("none", 0, end, end)  # all that lies in the file keeps its place
        for one in columns.blocked:
            add_blocks(one, out)
        return FoundBlocks(out.of(data.size))

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        end = end_of_file(data)
        columns = _columns(data, end, about)
        samples = columns.leaves[0].dataset.samples if columns else 0
        for begin, stop in pieces(samples):
            assert columns is not None
            data.reached(begin / samples)
            yield ScannedRows(numbered_keys(data.path, begin, stop - begin), columns.columns(begin, stop))


def _names(text: str) -> set[str]:
    return {usable_field(name.strip()) for name in text.split(",") if name.strip()}


def _columns(data: ObjectBytes, end: int, about: Mapping[str, Any]) -> FileColumns | None:
    """The fields of a file; ``None`` where it has none of those that were chosen."""
    wanted: Sequence[str] | None = about.get("fields")
    datasets = datasets_of(without_blocks(data, end), end, wanted)
    if not datasets:
        if wanted is None:
            raise data.unsupported("it holds no arrays", 0, hint="look what it is for: h5ls -r FILE")
        return None
    _check_lengths(data, datasets)
    return FileColumns(data, end, datasets)


def _check_lengths(data: ObjectBytes, datasets: Sequence[H5Dataset]) -> None:
    if len({one.samples for one in datasets}) == 1:
        return
    told = [f"{usable_field(one.name)} {one.samples}" for one in datasets]
    shown = ", ".join(told[:_SHOWN]) + (f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else "")
    raise data.unsupported(
        f"its arrays are of different numbers of samples: {shown}",
        0,
        hint="choose those that belong together: --format-option fields=NAME,NAME (SourceOptions(options=...))",
    )
