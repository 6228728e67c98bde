"""From the contents of a sample to a document. What cannot be packed is said in one sentence."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.pack.bins.binning import Binning
from shardstream.pack.bins.texts import Rendering, Texts
from shardstream.pack.bins.tokenizers import Tokens
from shardstream.pack.encode.files import Unreadable
from shardstream.pack.encode.sample import UNREADABLE, SampleEncoder, Transform, unreadable
from shardstream.pack.sources.base import Item
from shardstream.pack.sources.declared import fitted
from shardstream.pack.sources.values import encode
from shardstream.shards.arrays import check_unmasked, is_masked, is_tensor, tensor_to_numpy
from shardstream.shards.bins import LOSS
from shardstream.shards.fields import FieldType

_KEPT = ("str", "json")


class Document(NamedTuple):
    """A document as it goes into bins.

    Attributes:
        ids: Its tokens, (n,) of the dtype of the bins, n at least 1.
        loss: Which of them are learned from, bool (n,); ``None`` for all.
        columns: What it has besides: type and value by name, numbers and what JSON holds.
        whole: Its number of tokens, before it was truncated.
    """

    ids: NDArray[Any]
    loss: NDArray[np.bool_] | None
    columns: dict[str, tuple[FieldType, Any]]
    whole: int

    @property
    def size(self) -> int:
        """Bytes of its tokens."""
        return int(self.ids.nbytes)


@dataclass(frozen=True, slots=True)
class DocumentEncoder:
    """How a sample becomes a document.

    Attributes:
        samples: How its contents become values.
        binning: The bins.
        texts: How its text becomes tokens; ``None`` where it has tokens.
    """

    samples: SampleEncoder
    binning: Binning
    texts: Texts | None = None

    @property
    def transform(self) -> Transform | None:
        """The user's function."""
        return self.samples.transform

    @property
    def work(self) -> Rendering | None:
        """What is done in another process; ``None``: nothing."""
        return None if self.texts is None else self.texts.rendering

    def load(self, item: Item, contents: Mapping[str, bytes]) -> Generator[Any, Tokens, Document | None]:
        """A document; ``None``: the transform leaves it out.

        A generator: it yields what `work` is to be called with, and is sent the result, or thrown the error.

        Args:
            item: The sample.
            contents: What its files hold.

        Raises:
            Unreadable: It cannot be packed.
        """
        found = self.samples.values(item, contents)
        if found is None:
            return None
        values = {name: value for name, value in found.items() if value is not None}
        given, learned = yield from self._tokens(values)
        ids = self._ids([] if given is None else given)
        if not len(ids):
            raise Unreadable("it has no tokens")
        loss = None if learned is None else self._loss(learned, len(ids))
        columns = {name: self._column(name, value) for name, value in values.items()}
        return self._fitting(*self._framed(ids, loss), columns)

    def _tokens(self, values: dict[str, Any]) -> Generator[Any, Tokens, Tokens]:
        """The tokens of a document and its mask, taken out of its values."""
        if self.texts is not None:
            for name in (self.binning.field, LOSS):
                if name in values:
                    raise Unreadable(f"it has a field {name!r}, which is for tokens that come ready")
            return (yield from self.texts.tokens(values))
        if self.binning.field not in values:
            raise Unreadable(f"it has no field {self.binning.field!r}, which holds its tokens")
        given = values.pop(self.binning.field)
        if isinstance(given, int | float):
            field, budget = self.binning.field, self.binning.size
            raise Unreadable(
                f"field {field!r} is one number, not the tokens of a document; batches of samples that cost so much "
                f'together are made when they are read: batch_size={{"{field}": {budget}}}'
            )
        return Tokens(given, values.pop(LOSS, None))

    def _ids(self, given: Any) -> NDArray[Any]:
        if self.texts is not None and self.texts.tokenizer.fits(self.binning.dtype):
            return np.array(given, self.binning.dtype)
        return self._numbers(self.binning.field, given, self.binning.dtype)

    def _framed(
        self, ids: NDArray[Any], loss: NDArray[np.bool_] | None
    ) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """With the tokens that are put before and behind each document; its end is learned as its last token is."""
        bounds = self.binning.bos, self.binning.eos
        if bounds == (None, None):
            return ids, loss
        before, behind = (np.array([] if token is None else [token], ids.dtype) for token in bounds)
        if loss is not None:
            loss = np.concatenate((before != before, loss, np.full(len(behind), loss[-1])))
        return np.concatenate((before, ids, behind)), loss

    def _fitting(self, ids: NDArray[Any], loss: NDArray[np.bool_] | None, columns: dict[str, Any]) -> Document:
        whole, size = len(ids), self.binning.size
        if whole > size and self.binning.long == "reject":
            raise Unreadable(f"it has {whole:,} tokens, more than a bin of {size:,}")
        if whole > size and self.binning.long == "truncate":
            ids, loss = ids[:size], None if loss is None else loss[:size]
        return Document(ids, None if loss is None or loss.all() else loss, columns, whole)

    def _loss(self, value: Any, tokens: int) -> NDArray[np.bool_]:
        given = tensor_to_numpy(value) if is_tensor(value) else value
        if isinstance(given, list | np.ndarray) and not is_masked(given) and np.asarray(given).dtype == bool:
            given = np.asarray(given).astype(np.uint8)
        numbers = self._numbers(LOSS, given, "uint8")
        if len(numbers) != tokens:
            raise Unreadable(f"its {LOSS} has {len(numbers):,} numbers for {tokens:,} tokens")
        if numbers.max(initial=0) > 1:
            raise Unreadable(f"its {LOSS} has other numbers than 0 and 1")
        return numbers.astype(bool)

    def _numbers(self, name: str, value: object, dtype: str) -> NDArray[Any]:
        kind = FieldType.parse(f"values:{dtype}")
        try:
            check_unmasked(value)
            found = fitted(kind, value)
            if not isinstance(found, np.ndarray):  # bytes that are the elements
                found = kind.decode(memoryview(found))  # type: ignore[arg-type] # of bytes, `fitted` gives them back
        except UNREADABLE as error:
            raise unreadable(error, name) from error
        return np.asarray(found)

    def _column(self, name: str, value: object) -> tuple[FieldType, Any]:
        if name.startswith(f"{self.binning.field}."):
            raise Unreadable(f"field {name!r} is called like those that say where documents begin")
        declared = self.samples.declared.get(name) or self.samples.types.get(name)
        try:
            kind, encoded = encode(name, value, declared)
        except UNREADABLE as error:
            raise unreadable(error, name if name in self.samples.declared else None) from error
        if kind.kind == "scalar":
            return kind, encoded
        if kind.name in _KEPT:
            return kind, kind.decode(memoryview(encoded))  # type: ignore[arg-type] # what no scalar is encoded as, is bytes
        raise Unreadable(f"field {name!r} is {kind}: beside its tokens a document has numbers, text and JSON")
