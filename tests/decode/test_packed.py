"""What `Packed` makes of bins, beside the same, token by token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.decode import Packed, compile_fields
from shardstream.errors import FieldError, UsageError
from shardstream.shards.bins import PerBin, StoredBins
from shardstream.shards.fields import FieldType

SIZE = 8
NONE = np.empty(0, np.uint32)
TYPES = {
    name: FieldType.parse(kind)
    for name, kind in {
        "ids": "array:uint16:8",
        "ids.lengths": "values:int32",
        "ids.offsets": "values:uint32",
        "ids.loss": "values:uint32",
        "words": "array:float32:8",
        "pages": "array:uint16:8",
        "pages.lengths": "json",
    }.items()
}


@st.composite
def stored(draw: st.DrawFn) -> StoredBins:
    """Bins of any documents, of which some were cut, with masks and without."""
    lengths, offsets, loss = [], [], []
    for _ in range(draw(st.integers(1, 4))):
        cuts = sorted(draw(st.sets(st.integers(1, SIZE - 1))))
        sizes = np.diff([0, *cuts, SIZE])
        lengths.append((sizes * np.array([draw(st.sampled_from([1, 1, 1, -1])) for _ in sizes])).astype(np.int32))
        documents = int((lengths[-1] > 0).sum())
        given = draw(st.lists(st.integers(0, 50), min_size=documents, max_size=documents))
        offsets.append(np.array(given if draw(st.booleans()) else [], np.uint32))
        turns = sorted(draw(st.sets(st.integers(1, SIZE - 1))))
        loss.append(np.diff([0, *([0] if draw(st.booleans()) else []), *turns, SIZE]).astype(np.uint32))
        if draw(st.booleans()):
            loss[-1] = np.empty(0, np.uint32)
    ids = np.arange(1, SIZE * len(lengths) + 1, dtype=np.uint16).reshape(-1, SIZE)
    return StoredBins(ids, *(PerBin.of(rows) for rows in (lengths, offsets, loss)))


def token_by_token(bins: StoredBins, spec: Packed) -> dict[str, Any]:
    """The outputs, as slow as can be."""
    length = spec.length or SIZE
    lengths, offsets, loss = (np.split(one.values, np.cumsum(one.counts)[:-1]) for one in bins[1:])
    tokens = []  # (row, id, document or None, place in the piece, piece's length, position, learned from)
    document = 0
    for i, row in enumerate(bins.ids.tolist()):
        runs = loss[i]
        learned = [True] * SIZE
        if len(runs):
            learned = [n % 2 == 0 for n, run in enumerate(runs.tolist()) for _ in range(run)]
        at, number = 0, 0
        for signed in lengths[i].tolist():
            offset = 0
            if signed > 0:
                document += 1
                given = offsets[i]
                offset = 0 if not len(given) or spec.pieces == "restart" else int(given[number])
                number += 1
            for place in range(abs(signed)):
                where = (i * SIZE + at) // length
                tokens.append([where, row[at], document if signed > 0 else None, place, offset + place, learned[at]])
                at += 1
    starts = []
    for n, token in enumerate(tokens):
        before = tokens[n - 1] if n else None
        new = before is None or token[3] == 0 or token[0] != before[0]
        if new:
            starts.append(n)
        if spec.pieces == "restart":
            token[4] = 0 if new else before[4] + 1  # type: ignore[index]
    found: dict[str, list[int]] = {name: [] for name in ("ids", "labels", "position_ids", "segment_ids", "kept")}
    segment, row = 0, -1
    for n, (where, token, of, _, position, learned) in enumerate(tokens):
        if where != row and not spec.flat:
            segment = 0
        row = where
        segment += n in starts and of is not None
        found["ids"].append(token)
        found["position_ids"].append(position)
        found["segment_ids"].append(0 if of is None else segment)
        found["kept"].append(of is not None)
        if spec.labels == "same":
            label = token if of is not None and n not in starts and learned else -100
        else:
            behind = n + 1 < len(tokens) and n + 1 not in starts
            label = tokens[n + 1][1] if of is not None and behind and tokens[n + 1][5] else -100
        found["labels"].append(label)
    sizes = np.diff([*starts, len(tokens)])
    of_documents = [tokens[n][2] is not None for n in starts]
    if spec.flat:
        sizes = sizes[of_documents]
        kept = found.pop("kept")
        made: dict[str, Any] = {
            name: np.array([[one for one, keep in zip(values, kept, strict=True) if keep]])
            for name, values in found.items()
        }
    else:
        del found["kept"]
        made = {name: np.array(values).reshape(-1, length) for name, values in found.items()}
    made["cu_seqlens"] = np.cumsum([0, *sizes])
    made["max_seqlen"] = max(sizes, default=0)
    return made


@given(
    stored(),
    st.sampled_from([None, 8, 4, 2, 1]),
    st.sampled_from(["same", "next"]),
    st.sampled_from(["restart", "continue"]),
    st.booleans(),
    st.data(),
)
def test_the_outputs_are_those_made_token_by_token(
    bins: StoredBins, length: int | None, labels: Any, pieces: Any, flat: bool, data: st.DataObject
) -> None:
    spec = Packed(length, labels=labels, pieces=pieces, flat=flat)
    assert not bins.wrong()
    ends = sorted({*data.draw(st.lists(st.integers(1, len(bins.ids)))), len(bins.ids)})
    batches = np.diff(ends, prepend=0).tolist()
    every = spec.make(bins, batches, np.empty)
    for begin, end, outputs in zip([0, *ends], ends, every, strict=False):
        made, expected = dict(zip(spec.named, outputs, strict=True)), token_by_token(bins.part(slice(begin, end)), spec)
        assert made.keys() == expected.keys()
        for name, value in made.items():
            assert np.array_equal(value, expected[name]), name
            if isinstance(value, np.ndarray):
                assert value.dtype == (np.int32 if name in ("segment_ids", "cu_seqlens") else np.int64)


def test_fewer_outputs_are_the_same() -> None:
    bins = StoredBins(
        np.arange(8, dtype=np.uint16)[None], PerBin.of([np.array([3, 4, -1])]), PerBin.none(1), PerBin.none(1)
    )
    everything = dict(zip(Packed().named, *Packed().make(bins, (1,), np.empty), strict=True))
    for name, value in everything.items():
        ((alone,),) = Packed(outputs=(name,)).make(bins, (1,), np.empty)
        assert np.array_equal(alone, value)


def test_names_are_those_of_hugging_face_where_they_are_wanted() -> None:
    spec = Packed(outputs=("ids", "cu_seqlens", "max_seqlen"), names="hf", prefix="a_")
    assert list(spec.named) == [
        "a_input_ids",
        "a_cu_seq_lens_q",
        "a_cu_seq_lens_k",
        "a_max_length_q",
        "a_max_length_k",
    ]
    bins = StoredBins(
        np.arange(8, dtype=np.uint16)[None], PerBin.of([np.array([3, 4, -1])]), PerBin.none(1), PerBin.none(1)
    )
    ((ids, q, k, longest, _),) = spec.make(bins, (1,), np.empty)
    assert ids.tolist() == [[0, 1, 2, 3, 4, 5, 6]]
    assert q.tolist() == k.tolist() == [0, 3, 7]
    assert longest == 4


@pytest.mark.parametrize(
    ("lengths", "offsets", "loss", "what"),
    [
        ([3, 4], None, None, "lengths of 7 tokens in a bin of 8"),
        ([], None, None, "lengths of 0 tokens in a bin of 8"),
        ([8, 0], None, None, "a piece without tokens"),
        ([4, 4], [1], None, "other numbers of offsets and of documents"),
        ([8], None, [3, 4], "runs of the loss mask that are not of all tokens"),
        ([2**31 - 1, 9 - 2**31], None, None, "lengths of 4,294,967,286 tokens"),
    ],
)
def test_bins_that_contradict_themselves(lengths: list[int], offsets: Any, loss: Any, what: str) -> None:
    good = np.array([8], np.int32)
    bins = StoredBins(
        np.zeros((2, 8), np.uint16),
        PerBin.of([good, np.array(lengths, np.int32)]),
        PerBin.of([NONE, np.array(offsets or [], np.uint32)]),
        PerBin.of([NONE, np.array(loss or [], np.uint32)]),
    )
    (found,) = bins.wrong().items()
    assert found[0] == 1
    assert what in found[1]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"length": 0}, "length must be a number of tokens"),
        ({"length": 2.0}, "length must be a number of tokens"),
        ({"outputs": ("id",)}, "Packed has no output 'id'"),
        ({"outputs": ()}, "outputs must name each output once"),
        ({"outputs": ("ids", "ids")}, "outputs must name each output once"),
        ({"labels": "shifted"}, "labels must be 'same' or 'next'"),
        ({"pieces": "cut"}, "pieces must be 'restart' or 'continue'"),
        ({"names": "nemo"}, "names must be 'own' or 'hf'"),
        ({"optional": True}, "Packed cannot be optional"),
    ],
)
def test_arguments_that_are_not_allowed(arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        Packed(**arguments)


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        (Packed(3), "bins of 8 tokens make no rows of 3"),
        (Packed(16), "bins of 8 tokens make no rows of 16"),
        (
            Packed(source="words"),
            r"Packed cannot decode field 'words' of type array:float32:8|no field 'words.lengths'",
        ),
        (Packed(source="pages"), "field 'pages.lengths' of type json says nothing of bins"),
        (Packed(source="tokens"), "no field 'tokens"),
    ],
)
def test_fields_that_hold_no_bins(spec: Packed, what: str) -> None:
    with pytest.raises(FieldError, match=what):
        compile_fields({"text": spec}, TYPES)


def test_two_of_them_need_a_prefix() -> None:
    with pytest.raises(FieldError, match="two outputs have the name 'ids'"):
        compile_fields({"a": Packed(), "b": Packed()}, TYPES)
    plan = compile_fields({"a": Packed(outputs=["ids"]), "b": Packed(outputs=["ids"], prefix="b_")}, TYPES)
    assert plan.names == ("ids", "b_ids")
    assert plan.beside == ("ids.lengths",)
