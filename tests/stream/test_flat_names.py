"""Options of datasets by the names that they had as arguments of their own: they work, with one warning."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.dataset.opening import open_dataset, open_datasets
from shardstream.diagnose import bench_decode, reseal
from shardstream.errors import UsageError
from shardstream.storage import locate, open_object, open_store
from tests.stream.making import numbered, write_dataset

STREAM: dict[str, tuple[Any, str, Any]] = {
    "lanes": (3, "order=OrderOptions(lanes=...)", {"order": ss.OrderOptions(lanes=3)}),
    "chunk": (2, "order=OrderOptions(chunk=...)", {"order": ss.OrderOptions(chunk=2)}),
    "window": (9, "order=OrderOptions(window=...)", {"order": ss.OrderOptions(window=9)}),
    "affinity": ("none", "order=OrderOptions(affinity=...)", {"order": ss.OrderOptions(affinity="none")}),
    "threads": (1, "reads=ReadOptions(threads=...)", {"reads": ss.ReadOptions(threads=1)}),
    "prefetch": ("1MB", "reads=ReadOptions(prefetch=...)", {"reads": ss.ReadOptions(prefetch="1MB")}),
}
DATASET = STREAM | {
    "verify": (False, "reads=ReadOptions(verify=...)", {"reads": ss.ReadOptions(verify=False)}),
    "max_value": ("1MB", "reads=ReadOptions(max_value=...)", {"reads": ss.ReadOptions(max_value="1MB")}),
    "backend": ("pillow", "reads=ReadOptions(backend=...)", {"reads": ss.ReadOptions(backend="pillow")}),
    "transport": ("auto", "no transport=", {}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("flat"), numbered([12, 12]))


def same(one: ss.ShardDataset | ss.Mixture, other: ss.ShardDataset | ss.Mixture) -> bool:
    """Whether both read the same in the same order, and say so."""
    parts = [(part.options, part.source.fingerprint) for part in one._content.parts]
    others = [(part.options, part.source.fingerprint) for part in other._content.parts]
    return (one._settings, parts) == (other._settings, others)


@pytest.mark.parametrize("name", DATASET)
def test_a_flat_name_works_and_warns_once_with_the_new_form(folder: Path, name: str) -> None:
    value, now, new = DATASET[name]
    with pytest.warns(DeprecationWarning, match="one more version") as caught:
        flat = ss.ShardDataset(folder, batch_size=4, **{name: value})
    (one,) = caught
    assert (str(one.message), one.filename) == (
        f"ShardDataset({name}=) works for one more version: write {now}",
        __file__,
    )
    assert same(flat, ss.ShardDataset(folder, batch_size=4, **new))
    if name not in STREAM:
        return
    with pytest.warns(DeprecationWarning, match="one more version") as caught:
        flat_mixture = ss.Mixture({"one": (ss.ShardDataset(folder), 1)}, **{name: value})
    assert [str(one.message) for one in caught] == [f"Mixture({name}=) works for one more version: write {now}"]
    assert same(flat_mixture, ss.Mixture({"one": (ss.ShardDataset(folder), 1)}, **new))


def test_a_rank_and_a_world_size_are_one_argument(folder: Path) -> None:
    with pytest.warns(
        DeprecationWarning, match=r"\(rank=, world_size=\).* write ranks=\(rank, world_size\)$"
    ) as caught:
        flat = ss.ShardDataset(folder, rank=1, world_size=2)
    assert len(caught) == 1
    assert same(flat, ss.ShardDataset(folder, ranks=(1, 2)))
    with pytest.warns(DeprecationWarning, match=r"^ShardDataset.replace\(rank=, world_size=, window=\)") as caught:
        other = flat.replace(rank=0, world_size=3, window=5)
    assert len(caught) == 1
    assert same(other, flat.replace(ranks=(0, 3), order=ss.OrderOptions(window=5)))
    for wrong in (1, (1, None), (2, 2), "ab"):
        with pytest.raises(UsageError, match=r"ranks?( must be|=)"):
            ss.ShardDataset(folder, ranks=wrong)  # type: ignore[arg-type] # as users write it


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"lane": 3}, r"takes no argument 'lane'(.|\n)*did you mean order=OrderOptions\(lanes=\.\.\.\)"),
        ({"prefetchs": 3}, r"takes no argument 'prefetchs'(.|\n)*did you mean reads=ReadOptions\(prefetch=\.\.\.\)"),
        ({"lanes": 3, "order": ss.OrderOptions()}, r"got lanes= and order=OrderOptions\(\.\.\.\)"),
        ({"rank": 0, "ranks": (0, 2)}, r"got rank= or world_size=, and ranks="),
        ({"reads": ss.ReadOptions(), "verify": False}, r"got verify= and reads=ReadOptions\(\.\.\.\)"),
        ({"transport": "boto"}, "transport must be one of auto, obstore, fsspec, got 'boto'"),
        ({"reading": ss.SourceOptions(group="stem")}, r"takes no reading=SourceOptions\(group=\.\.\.\)"),
    ],
)
def test_unknown_names_and_both_forms_at_once_are_refused(folder: Path, given: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        ss.ShardDataset(folder, **given)


def test_what_replace_and_mixtures_do_not_take(folder: Path) -> None:
    dataset = ss.ShardDataset(folder)
    for given, what in (
        ({"lane": 3}, r"replace takes no argument 'lane'(.|\n)*did you mean order=OrderOptions\(lanes=\.\.\.\)"),
        ({"where": {}}, r"ShardDataset.replace takes no argument 'where'(.|\n)*see help\(ss.ShardDataset.replace\)"),
        ({"lanes": 3, "order": ss.OrderOptions()}, "replace got lanes= and order="),
        ({"reading": ss.SourceOptions()}, "ShardDataset.replace takes no argument 'reading'"),
        ({"lanes": 0}, "lanes must be a positive integer or None, got 0"),
    ):
        with pytest.raises(UsageError, match=what):
            dataset.replace(**given)
    with pytest.raises(UsageError, match=r"Mixture takes no reads=ReadOptions\(verify=\.\.\.\)"):
        ss.Mixture({"one": (dataset, 1)}, reads=ss.ReadOptions(verify=False))
    with pytest.raises(UsageError, match=r"Reader takes no reads=ReadOptions\(threads=\.\.\.\)"):
        ss.Reader(folder, reads=ss.ReadOptions(threads=2))


def test_readers_and_verbs_take_flat_names_too(folder: Path) -> None:
    with pytest.warns(DeprecationWarning, match=r"^Reader\(verify=\) .* write reads=ReadOptions\(verify=\.\.\.\)$"):
        assert len(ss.Reader(folder, verify=False)) == 24


TAKE_TRANSPORT: list[Callable[..., Any]] = [
    *(ss.info, ss.verify, ss.Reader, ss.ShardDataset, ss.Manifest.load, bench_decode, reseal),
    *(locate, open_store, open_object, open_dataset, open_datasets),
]


@pytest.mark.parametrize("function", TAKE_TRANSPORT, ids=lambda one: one.__qualname__)
def test_whatever_took_a_transport_still_does_and_warns_once(folder: Path, function: Callable[..., Any]) -> None:
    more = {"seconds": 0.001} if function is bench_decode else {}
    text = f'{function.__qualname__}(transport=) works for one more version: write "fsspec+..." URLs'
    warned = pytest.warns(DeprecationWarning, match=f"^{re.escape(text)}$")
    with warned as caught, suppress(UsageError):  # there are no images
        function(folder, transport="fsspec", **more)
    assert [one.filename for one in caught] == [__file__]


def test_a_transport_becomes_the_prefix_of_urls() -> None:
    with pytest.raises(UsageError, match=r"transport= and a URL with fsspec\+"):
        open_store("fsspec+s3://bucket/set", transport="fsspec")
    with pytest.warns(DeprecationWarning, match=r'write "fsspec\+\.\.\." URLs$'):
        assert open_store("s3://bucket/set", transport="fsspec").url == "s3://bucket/set"
    for text in ("fsspec+s3://bucket/set", "FSSPEC+S3://bucket/set"):
        location = locate(text)
        assert (location.url, location.transport) == ("s3://bucket/set", "fsspec")
        assert (location.join("a").transport, location.parent().transport) == ("fsspec", "fsspec")
    assert locate("fsspec+file:///tmp").local
