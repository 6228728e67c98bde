"""The pieces of all objects become a catalogue: one type for each field, the indexes one after another, a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from shardstream.errors import FieldError, FormatError, PlaceholderError, UnsupportedError
from shardstream.formats.blocks import BlockList, ObjectBlocks
from shardstream.formats.blocks.table import COLUMNS
from shardstream.formats.catalog.catalog import Catalogue, Reading
from shardstream.formats.catalog.journal import ObjectState
from shardstream.formats.catalog.kept import FoundCatalogue, KeptCatalogue
from shardstream.formats.catalog.object_table import ObjectTable
from shardstream.formats.catalog.plan import Making, Plan
from shardstream.formats.catalog.scan import EMPTY, Piece
from shardstream.formats.framing import is_form
from shardstream.formats.scans.rows import Loss, Remark, told_losses
from shardstream.shards.fields import IMAGE, FieldType
from shardstream.shards.layout import pack_index, parse_index
from shardstream.sizes import plural
from shardstream.storage.base.placeholders import placeholder_in

PiecesOf: TypeAlias = Callable[[int], Iterable[Piece]]
_IMAGES = frozenset(("jpg", "png", "webp", IMAGE))
_NEW = "indexes.new"


class AbsentFieldError(FieldError):
    """No sample has a value in a field that was chosen."""


def write_catalogue(
    plan: Plan, states: Sequence[ObjectState], pieces_of: PiecesOf, shelf: KeptCatalogue, making: Making
) -> FoundCatalogue:
    """Write the catalogue of objects that were scanned, on this machine; what it was before stays until it is whole.

    Args:
        plan: The objects.
        states: What each is.
        pieces_of: Gives the pieces of an object, by its number; called twice for each.
        shelf: Where the catalogue goes.
        making: What becomes of damage.

    Raises:
        FormatError: An object is damaged, or none has a sample.
        FieldError: A field is of several types, or no sample has a value in it (`AbsentFieldError`).
        StorageError: The disk is full.
    """
    fields = _united(
        plan, (piece for number in range(len(states)) for piece in _whole(plan, number, pieces_of, making)), making
    )
    shards: list[tuple[int, int, int, int]] = []  # end and checksum of the index, number of the object, samples
    blocks = [BlockList().of(state.size) for state in states]
    at, classes = 0, plan.recognised.classes

    def indexes() -> Iterator[bytes]:
        nonlocal at, classes
        for number, state in enumerate(states):
            for piece in pieces_of(number):
                if not piece.samples:
                    continue
                if piece.classes is not None:
                    classes = tuple(piece.classes)
                if piece.blocks is not None and not len(blocks[number]):
                    blocks[number] = ObjectBlocks.unpack(state.size, piece.blocks)
                data = _retyped(piece, fields, plan.reading, state, blocks[number].size or state.size)
                at += len(data)
                shards.append((at, int.from_bytes(data[-8:], "little"), number, piece.samples))
                yield data

    with shelf.folder.replacing(_NEW) as descriptor, open(descriptor, "wb", closefd=False) as file:
        file.writelines(indexes())
    catalogue = Catalogue.made(
        _table(states, blocks, shards),
        fields,
        reading=plan.reading,
        classes=classes,
        notes=plan.recognised.notes,
        lost=making.lost,
        remarks=making.remarks,
        url=plan.store.url,
    )
    catalogue = replace(catalogue, named=plan.named, listing=plan.listing)
    if not catalogue.samples:
        look = "name a place that holds some, or another format with SourceOptions(format=...); hidden files hold none"
        losses = (f"{name}: {told_losses(lost)}" for name, lost in making.lost.items())
        kind = FormatError if making.lost else UnsupportedError
        raise kind(
            f"{plan.reading.format.title}: there is no sample in any object",
            url=plan.store.url,
            hint=next(iter((*catalogue.warnings, *losses)), look),
        )
    return shelf.save(catalogue, _NEW)


def _table(
    states: Sequence[ObjectState], blocks: Sequence[ObjectBlocks], shards: Sequence[tuple[int, int, int, int]]
) -> ObjectTable:
    names = [state.path.encode() for state in states]
    columns = np.array(shards, np.uint64).reshape(-1, 4).T
    settings = [setting for one in blocks for setting in one.settings]
    return ObjectTable(
        sizes=np.array([state.size for state in states], "<u8"),
        versions=np.array([state.version for state in states], "<u8"),
        checksums=np.zeros(len(states), "<u8"),
        abouts=np.array([state.about for state in states], "<u8"),
        name_ends=np.cumsum([len(name) for name in names], dtype=np.uint64).astype("<u8"),
        block_ends=np.cumsum([len(one) for one in blocks], dtype=np.uint64).astype("<u8"),
        index_ends=columns[0].astype("<u8"),
        index_checksums=columns[1].astype("<u8"),
        objects=columns[2].astype("<u4"),
        samples=columns[3].astype("<u4"),
        **{
            f"block_{name}": np.concatenate([one.columns[number] for one in blocks]).astype(kind)
            for number, (name, kind) in enumerate(COLUMNS)
        },
        block_setting_ends=np.cumsum([len(one.settings) for one in blocks], dtype=np.uint64).astype("<u8"),
        setting_ends=np.cumsum([len(setting) for setting in settings], dtype=np.uint64).astype("<u8"),
        names=memoryview(b"".join(names)),
        settings=memoryview(b"".join(settings)),
    )


def _whole(plan: Plan, number: int, pieces_of: PiecesOf, making: Making) -> Iterator[Piece]:
    """The pieces of an object; samples that cannot be read are an error, or noted."""
    path = plan.recognised.objects[number].path
    remarks: list[Remark] = []
    pieces = iter(pieces_of(number))
    for piece in pieces:
        if piece.lost:
            if making.damaged == "error":
                lost = [one for some in (piece, *pieces) for one in some.lost]
                raise _refused(plan, path, lost)
            making.lost[path] = (*making.lost.get(path, ()), *piece.lost)
        remarks += piece.remarks
        yield replace(piece, fields=dict(piece.fields))
    if remarks:
        making.remarks[path] = tuple(remarks)


def _refused(plan: Plan, path: str, lost: Sequence[Loss]) -> FormatError:
    """The error for an object of which something is lost."""
    url, leave_out = plan.store.locate(path), f"`{plan.command} --damaged reject` leaves out what is lost"
    kinds = {one.kind for one in lost}
    if "missing" in kinds:
        placeholder = placeholder_in(plan.store, path, plan.store.size(path))
        if placeholder is not None:
            return PlaceholderError(placeholder.what, url=url, hint=f"{placeholder.hint}; {leave_out}")
    if kinds == {"unsupported"}:
        return UnsupportedError(told_losses(lost), url=url, hint=leave_out)
    single = all(one.line for one in lost)
    again = f"{'correct' if single else 'fetch or write'} it{'' if single else ' again'}"
    return FormatError(f"an object is damaged: {told_losses(lost)}", url=url, hint=f"{again}; {leave_out}")


def _united(plan: Plan, pieces: Iterable[Piece], making: Making) -> dict[str, FieldType]:
    """The type of each field in all objects."""
    kinds: dict[str, Counter[str]] = {}
    for piece in pieces:
        for name, kind in piece.fields.items():
            kinds.setdefault(name, Counter())[kind] += piece.samples
    missing = [name for name in plan.reading.chosen if name not in kinds]
    if missing:
        text = plan.reading.chosen[missing[0]].partition(":")[0]
        lost = next((f"{name}: {told_losses(what)}" for name, what in making.lost.items()), None)
        raise AbsentFieldError(
            f"no object has a field {text!r}",
            url=plan.store.url,
            field=missing[0],
            hint=lost or "index it without fields to see all",
        )
    return {name: _common(name, found, plan) for name, found in kinds.items()}


def _common(name: str, found: Counter[str], plan: Plan) -> FieldType:
    lists = {kind: count for kind, count in found.items() if kind != EMPTY}
    if EMPTY in found and all(kind == "json" or kind.startswith("values:") for kind in lists):
        found = Counter(lists or {"json": found[EMPTY]})
    if len(found) == 1:
        return FieldType.parse(next(iter(found)))
    if set(found) <= _IMAGES:
        return FieldType.parse(IMAGE)
    if set(found) <= _IMAGES | {"bytes"}:
        return FieldType.parse("bytes")
    told = ", ".join(
        f"{'empty lists' if kind == EMPTY else kind} in {plural(count, 'sample')}"
        for kind, count in found.most_common()
    )
    unites = plan.reading.format.unites.format(name)
    hint = f"{unites}; or leave it out" if unites else "leave it out: fields= names those to take"
    raise FieldError(f"the field is of several types: {told}", url=plan.store.url, field=name, hint=hint)


def _retyped(piece: Piece, fields: Mapping[str, FieldType], reading: Reading, state: ObjectState, end: int) -> bytes:
    """The index of a piece of an object of ``end`` bytes, with the types that the data set has."""
    if all(kind != EMPTY and FieldType.parse(kind).name == fields[name].name for name, kind in piece.fields.items()):
        return piece.index
    framing = reading.framing.name
    index = parse_index(memoryview(piece.index), path=state.path, framing=framing, end=end, is_form=is_form)
    columns = [replace(column, type=fields[name]) for name, column in index.columns.items()]
    empty = reading.format.empty
    for number, column in enumerate(columns):
        if piece.fields[column.name] == EMPTY:
            codec = empty if column.type.name == "json" else f"{empty}:{column.type}"
            columns[number] = replace(column, codec=codec)
    ends, blob = index.keys.parts
    return pack_index(framing, (ends.astype(np.uint64), bytes(blob)), columns, end=end)
