"""`where=` by comparisons, callables and keys: asked once, of the index alone, and known by what they found."""

from __future__ import annotations

import bz2
import gzip
import math
import operator
import pickle
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardstream as ss
from shardstream.dataset import conditions, source
from shardstream.errors import FieldError, MissingKeyError, SourceError, TransformError, UsageError
from shardstream.shards.fields import SCALAR_TYPES, FieldType

from .exact import FLOATS, near
from .making import numbered, write_dataset
from .resuming import ids_of

SIZES = [400, 1, 0, 250, 99, 250]
SHARES = {"train": 0.7, "val": 0.3}
SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shards = numbered(SIZES, width=lambda n: n * 7 % 100, height=lambda n: n * 3 % 100, txt=str)
    for sample in shards[4]:
        del sample["height"]
    return write_dataset(tmp_path_factory.mktemp("conditions"), shards)


def found(folder: Any, where: Any, **options: Any) -> list[int]:
    return [sample["id"] for sample in ss.ShardDataset(folder, fields=["id"], where=where, **options)]


def has_height(number: int) -> bool:
    return not 651 <= number < 750


# --------------------------------------------------------------------------------------------------------- comparisons

_EDGES = st.sampled_from([7, 8, 10, 11, 15, 16, 24, 31, 32, 53, 63, 64, 127, 128, 1024]).map(lambda power: 1 << power)
_ASKED = (
    st.builds(lambda edge, sign, step: sign * edge + step, _EDGES, st.sampled_from([1, -1]), st.integers(-2, 2))
    | st.integers(-3, 300)
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.sampled_from([0.1, 0.5, 1 / 3, -0.0, 65519.99, 65520.0, 3.4028235677973366e38, 1e-50, math.inf, -math.inf])
)


def _exact(kind: str, asked: Any) -> Any:
    """The number that a comparison is with: a float as a column of floats holds it, all else as it is."""
    if isinstance(asked, float) and kind in FLOATS and math.isfinite(asked):
        with np.errstate(over="ignore"):
            held = float(np.dtype(kind).type(asked))
        asked = held if math.isfinite(held) else asked
    return Fraction(asked) if isinstance(asked, int) or math.isfinite(asked) else asked


@pytest.mark.parametrize("kind", SCALAR_TYPES)
@given(data=st.data())
def test_a_comparison_is_that_of_exact_numbers(kind: str, data: st.DataObject) -> None:
    stored = np.array([value for value in near(kind) if value == value], kind)
    asked = data.draw(_ASKED | st.sampled_from(stored.tolist()))
    sign = data.draw(st.sampled_from(list(SIGNS)))
    compare, bound = conditions.bound_of(sign, asked, FieldType.parse(kind))
    wanted = _exact(kind, asked)
    held = [Fraction(value) if math.isfinite(value) else value for value in stored.tolist()]
    assert compare(stored, bound).tolist() == [SIGNS[sign](value, wanted) for value in held]


@pytest.mark.parametrize(
    ("where", "meant"),
    [
        ({"width": (">=", 50)}, lambda n, w, h: w >= 50),
        ({"width": [(">=", 20), ("<", 60.5)]}, lambda n, w, h: 20 <= w < 60.5),
        ({"width": ("<", 30), "height": [1, 2, 3]}, lambda n, w, h: w < 30 and has_height(n) and h in (1, 2, 3)),
        ({"height": ("!=", 3)}, lambda n, w, h: has_height(n) and h != 3),
        ({"height": ("!=", [3, 6, 9])}, lambda n, w, h: has_height(n) and h not in (3, 6, 9)),
        ({"width": (">", np.float32(90))}, lambda n, w, h: w > 90),
        ({"height": lambda h: h > 50}, lambda n, w, h: has_height(n) and h > 50),
        ({("width", "height"): lambda w, h: w * h > 5000}, lambda n, w, h: has_height(n) and w * h > 5000),
        ({"width": (">", 1e9)}, lambda n, w, h: False),
        ({}, lambda n, w, h: True),
    ],
)
def test_the_samples_that_are_meant_are_found(folder: Path, where: Any, meant: Callable[..., bool]) -> None:
    expected = [n for n in range(1000) if meant(n, n * 7 % 100, n * 3 % 100)]
    assert found(folder, where) == expected
    assert ss.Reader(folder).find(where).tolist() == expected
    assert len(ss.ShardDataset(folder, where=where)) == len(expected)
    train = ss.ShardDataset(folder, fields=["id"], split=("train", SHARES))
    kept = [sample["id"] for sample in train.filter(where)]
    assert kept == found(folder, where, split=("train", SHARES))
    assert kept == [sample["id"] for sample in train if sample["id"] in set(expected)]
    assert [sample["id"] for sample in train.filter(where).take(7)] == kept[:7]


def test_class_names_can_be_left_out(tmp_path: Path) -> None:
    with ss.ShardWriter(tmp_path / "named", classes=["cat", "dog", "eel"]) as writer:
        for number in range(9):
            writer.write({"__key__": str(number), "id": number, "cls": number % 3})
    assert found(tmp_path / "named", {"cls": ("!=", "dog")}) == [0, 2, 3, 5, 6, 8]
    assert found(tmp_path / "named", {"cls": ("!=", ["dog", 2])}) == [0, 3, 6]
    with pytest.raises(FieldError, match="no class is called 'cow'"):
        found(tmp_path / "named", {"cls": ("!=", "cow")})


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"width": ("==", 5)}, r'where knows <, <=, >, >=, !=, not .==.(.|\n)*where=\{"width": 5\} is equality'),
        ({"width": ("=>", 5)}, "not '=>'"),
        ({"width": (">", "dog")}, "can compare 'width' by > with a number, not with 'dog'"),
        ({"width": (">", math.nan)}, "not with nan"),
        ({"width": (">", None)}, "not with None"),
        ({"width": [(">", 5), 7]}, "lists values and comparisons"),
        ({"widht": (">", 5)}, "did you mean 'width'"),
        ({"txt": (">", 5)}, "stands in the index"),
        ({"txt": lambda text: text}, "stands in the index"),
        ({("width", "hight"): lambda w, h: w > h}, "did you mean 'height'"),
        ({("width", "height"): 5}, "need a callable, got 5"),
        ({(): lambda: True}, "need a callable"),
        (lambda width: width > 5, r"must be a dict(.|\n)*name the columns that it looks at"),
        ({"__key__": None}, "where= must list keys, got None"),
        ({"__key__": 5}, "where= must list keys, got 5"),
        ({"__key__": b"k000001"}, "where= must list keys"),
        ({"__key__": ["k000001", 2]}, "where= must list keys, got 2"),
    ],
)
def test_what_cannot_be_asked_is_refused(folder: Path, where: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ss.ShardDataset(folder, where=where)
    with pytest.raises(UsageError, match=message):
        ss.Reader(folder).find(where)


# ----------------------------------------------------------------------------------------------------------- callables


def test_a_callable_sees_each_sample_once_some_at_a_time_and_no_worker_calls_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_ROWS", 64)
    seen: list[Any] = []

    def wanted(width: Any, height: Any) -> Any:
        assert len(width) == len(height) <= 64
        seen.append(width)
        return width > height

    dataset = ss.ShardDataset(folder, fields=["id"], where={"id": ("<", 900), ("width", "height"): wanted})
    assert sum(map(len, seen)) == 900 - 99
    calls = len(seen)
    expected = [n for n in range(900) if has_height(n) and n * 7 % 100 > n * 3 % 100]
    loader = ss.Loader(dataset, batch_size=50, num_workers=2, multiprocessing_context="fork")
    assert [n for batch in loader for n in ids_of(batch)] == expected
    assert ids_of(list(pickle.loads(pickle.dumps(dataset)))) == expected
    assert len(seen) == calls


def test_a_further_filter_is_asked_of_what_is_left_only(folder: Path) -> None:
    asked: list[int] = []

    def small(numbers: Any) -> Any:
        asked.extend(numbers.tolist())
        return numbers < 100

    dataset = ss.ShardDataset(folder, fields=["id"]).filter({"id": lambda n: n % 2 == 0}).filter({"id": small})
    assert asked == list(range(0, 1000, 2))
    assert ids_of(list(dataset)) == list(range(0, 100, 2))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda width: width, r"must return a bool for each of 400 samples, got \w+ \[400\]"),
        (lambda width: bool((width > 5).any()), r"must return a bool for each of 400 samples, got bool \[\]"),
        (lambda width: width[:3] > 5, r"got bool \[3\]"),
    ],
)
def test_a_callable_that_returns_something_else_is_refused(folder: Path, function: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        ss.ShardDataset(folder, where={"width": function})
    assert caught.value.place["shard"] == "shard-000000.tar"


def test_what_a_callable_raises_has_its_place(folder: Path) -> None:
    with pytest.raises(TransformError, match=r"where, width by .*<lambda>, raised ZeroDivisionError") as caught:
        ss.ShardDataset(folder, where={"width": lambda width: 1 // 0})
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.place["shard"] == "shard-000000.tar"
    for function in (lambda width: width > 5 and width < 9, lambda width: [[True], [True, False]]):
        with pytest.raises(TransformError, match=r"raised ValueError(.|\n)*a NumPy array for each column"):
            ss.ShardDataset(folder, where={"width": function})


# ---------------------------------------------------------------------------------------------------------------- keys


def test_keys_of_a_list_or_a_file_are_found(folder: Path, tmp_path: Path) -> None:
    numbers = [3, 400, 401, 650, 651, 999]
    keys = [f"k{n:06d}" for n in numbers]
    text = "\ufeff" + "\r\n".join(keys[:3]) + "\n\n" + "\n".join(keys[3:])
    (tmp_path / "a list.txt").write_text(text)
    (tmp_path / "keys.txt.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "keys.bz2").write_bytes(bz2.compress(text.encode()))
    files = [tmp_path / "a list.txt", str(tmp_path / "keys.txt.gz"), tmp_path / "keys.bz2"]
    for given_keys in (keys, tuple(keys), set(keys), np.array(keys), keys * 2, *files):
        assert found(folder, {"__key__": given_keys}) == numbers
    assert ss.Reader(folder).find({"__key__": files[0], "width": (">", 50)}).tolist() == [
        n for n in numbers if n * 7 % 100 > 50
    ]
    assert found([folder, folder], {"__key__": keys[:2]}) == [3, 400] * 2
    parts = [found(folder, {"__key__": keys}, split=(name, SHARES)) for name in SHARES]
    assert sorted(parts[0] + parts[1]) == numbers
    assert found(folder, {"__key__": []}) == []


def test_keys_that_are_not_there_are_named(folder: Path, tmp_path: Path) -> None:
    keys = ["k000001", *(f"no{n}" for n in range(8))]
    (tmp_path / "keys.txt").write_text("\n".join(keys))
    for given_keys in (keys, tmp_path / "keys.txt"):
        with pytest.raises(MissingKeyError, match=r"no sample has 8 of the 9 keys in where=: 'no0', .*'no4', \.\.\."):
            found(folder, {"__key__": given_keys})
        with pytest.raises(MissingKeyError, match="no sample has 8 of the 9 keys in exclude_keys="):
            ss.ShardDataset(folder, exclude_keys=given_keys)
    with pytest.raises(SourceError, match=r"the list cannot be read(.|\n)*keys by themselves are a list"):
        found(folder, {"__key__": "k000001"})
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"k000001\n" * 9)[:-9])
    refused = {tmp_path / "cut.gz": "copy or compress it again", tmp_path: "pass a file"}  # not: a list of keys
    for path, message in refused.items():
        with pytest.raises(SourceError, match=message):
            found(folder, {"__key__": path})
    (tmp_path / "latin").write_bytes(b"k000001\nk\xe4\n")
    with pytest.raises(SourceError, match="a key is not UTF-8") as caught:
        found(folder, {"__key__": tmp_path / "latin"})
    assert caught.value.place["line"] == 2


def test_all_samples_of_a_key_are_found(tmp_path: Path) -> None:
    shards = [[{"__key__": key, "id": n} for n, key in enumerate("abca")], [{"__key__": "a", "id": 9}]]
    folder = write_dataset(tmp_path / "d", shards)
    assert found(folder, {"__key__": ["a"]}) == [0, 3, 9]


# -------------------------------------------------------------------------------------------------------------- states


def test_the_same_result_goes_on_whoever_found_it_and_another_is_refused(folder: Path) -> None:
    def dataset(where: Any) -> ss.ShardDataset:
        return ss.ShardDataset(folder, fields=["id"], where=where, batch_size=16, shuffle=True, seed=3)

    one = dataset({"id": lambda n: n % 2 == 0})
    whole = [ids_of(batch) for batch in one]
    one.set_epoch(0)
    batches = iter(one)
    begun = [ids_of(next(batches)) for _ in range(5)]
    state = one.state_dict()
    keys = [f"k{n:06d}" for n in range(0, 1000, 2)]
    for same in ({"id": lambda n: (n & 1) == 0}, {"__key__": keys}):
        other = dataset(same)
        other.load_state_dict(state)
        assert begun + [ids_of(batch) for batch in other] == whole
    assert dataset({"id": ("<", 500)}).fingerprint == dataset({"id": lambda n: n < 500}).fingerprint
    for another in ({"id": lambda n: n % 2 == 1}, {"id": lambda n: (n % 2 == 0) & (n < 998)}, None):
        with pytest.raises(UsageError, match="another view of this data"):
            dataset(another).load_state_dict(state)


def test_values_are_known_by_what_was_asked_as_ever(folder: Path) -> None:
    one = ss.ShardDataset(folder, where={"width": [5, 3]})
    assert one.fingerprint == source.digest([one.manifest.fingerprint, [None, [["width", [3, 5]]], None]])
    both = ss.ShardDataset(folder, where={"width": [5, 3], "height": 6})
    for first, second in (("width", "height"), ("height", "width")):
        asked: dict[str, Any] = {"width": [5, 3], "height": 6}
        apart = ss.ShardDataset(folder).filter({first: asked[first]}).filter({second: asked[second]})
        assert apart.fingerprint == both.fingerprint
    assert ids_of(list(one.filter({"width": [3, 8]}))) == [n for n in range(1000) if n * 7 % 100 == 3]


def test_it_says_what_was_asked(folder: Path) -> None:
    dataset = ss.ShardDataset(folder, where={"width": (">=", 50), "id": [1, 2, 7, 8]}, split=("train", SHARES))
    assert "split 'train', id in [1, 2, 7, 8], width >= 50" in repr(dataset)
    assert "(id >= 7, id < 9, the first 5)" in repr(
        ss.ShardDataset(folder, where={"id": [(">=", 7), ("<", 9)]}).take(5)
    )
    assert "1 key)" in repr(ss.ShardDataset(folder, where={"__key__": ["k000003"]}))
