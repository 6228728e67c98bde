"""Fields of documents, checked before the first of them is tokenized: tokens are there, and integers have no gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardstream.errors import UsageError, did_you_mean
from shardstream.pack.bins.rows import missing_integer
from shardstream.pack.options import PackOptions
from shardstream.pack.sources import Item, Reject, Source
from shardstream.shards.bins import LOSS
from shardstream.shards.fields import FieldType


def check_document_fields(
    source: Source, options: PackOptions, types: Mapping[str, FieldType], some: Sequence[Item | Reject]
) -> None:
    """Refuse documents that cannot be packed into bins.

    A transform may make any field, so nothing is checked if there is one.

    Args:
        source: Where the documents come from.
        options: What was asked for.
        types: Types of fields, as far as they are known.
        some: Some of the samples.

    Raises:
        UsageError: No sample has the field that holds the tokens.
        FieldError: An integer field beside it has no value in some samples.
    """
    if options.binning is None or options.bins is None or options.transform is not None:
        return
    items = [one for one in some if isinstance(one, Item)]
    types = {**types, **source.declared}
    names = {*types, *(name for one in items for name in one.values)}
    field = options.bins.document_field
    if options.texts is None and names and field not in names:
        raise _no_document(source, names, field)
    for name, kind in types.items():
        if (
            name in (field, LOSS)
            or name.startswith(f"{field}.")
            or kind.dtype is None
            or kind.kind != "scalar"
            or kind.dtype.kind == "f"
        ):
            continue
        key = source.first_without(name, of=field) or _first_without(items, name, of=field)
        if key is not None:
            raise missing_integer(name, key, text=field).at(url=source.url)


def _first_without(items: Sequence[Item], name: str, *, of: str) -> str | None:
    """As `Source.first_without`, of these samples."""
    documents = [one for one in items if one.values.get(of) is not None and not _is_empty(one.values[of])]
    without = [one.key for one in documents if one.values.get(name) is None]
    return without[0] if 0 < len(without) < len(documents) else None


def _is_empty(value: object) -> bool:
    return isinstance(value, str) and not value  # such a document is rejected, whatever else it has


def _no_document(source: Source, names: set[str], field: str) -> UsageError:
    return UsageError(
        f"no sample has a field {field!r}, which holds the tokens of a document",
        url=source.url,
        field=field,
        hint=f"{did_you_mean(field, names)}name it: --bin-field FIELD (bins=PackedSequences(..., field='FIELD')); "
        f"there are {', '.join(map(repr, sorted(names)))}",
    )
