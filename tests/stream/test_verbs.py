"""`map`, `filter`, `rename` and `select`: short names for what arguments say, in whatever order they are written."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shardstream as ss
from shardstream.decode import CenterCrop, Mask, RandomResizedCrop
from shardstream.errors import FieldError, TransformError, UsageError

from .making import labels, numbered, photograph, square, write_dataset
from .resuming import ORDER, flat, ids_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shards = numbered([30, 20], jpg=photograph, png=lambda n: labels(), cls=lambda n: n % 7, txt=lambda n: f"text {n}")
    return write_dataset(tmp_path_factory.mktemp("verbs"), shards)


def plus(number: int, sample: dict[str, Any]) -> dict[str, Any]:
    return sample | {"id": sample["id"] + number}


def as_it_is(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


def odd(sample: dict[str, Any]) -> dict[str, Any] | None:
    return sample if sample["id"] % 2 else None


def drawn(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return sample | {"drawn": [*sample.get("drawn", ()), rng.random()]}


def dataset(folder: Path, **options: Any) -> ss.ShardDataset:
    return ss.ShardDataset(folder, **{"fields": ["id", "cls"], **options})


def test_maps_are_called_one_after_another_until_one_leaves_the_sample_out(folder: Path) -> None:
    whole = dataset(folder)
    assert ids_of(list(whole.map(partial(plus, 1)).map(square))) == [(n + 1) ** 2 for n in range(50)]
    assert ids_of(list(dataset(folder, transform=square).map(partial(plus, 1)))) == [n**2 + 1 for n in range(50)]
    assert ids_of(list(whole.map(odd).map(partial(plus, 1)))) == [n + 1 for n in range(50) if n % 2]
    batch = next(iter(whole.map(odd).map(square).replace(batch_size=4)))
    assert batch["id"].tolist() == [1, 9]
    assert ids_of(list(whole)) == list(range(50))  # is what it was


def test_one_map_is_a_transform_and_further_ones_draw_for_themselves(folder: Path) -> None:
    def seen(one: ss.ShardDataset) -> list[Any]:
        return [sample["drawn"] for sample in one]

    once = seen(dataset(folder, transform=drawn, seed=3))
    assert seen(dataset(folder, seed=3).map(drawn)) == once
    twice = seen(dataset(folder, seed=3).map(drawn).rename({"cls": "label"}).map(drawn))
    assert [first for first, _ in twice] == [first for (first,) in once]
    assert all(first != second for first, second in twice)


def test_states_go_on(folder: Path) -> None:
    def loader() -> ss.Loader:
        made = dataset(folder, batch_size=4, **ORDER).filter({"cls": ("<", 5)}).map(partial(plus, 3))
        made = made.rename({"id": "number"}).map(rename_back).select("id")
        return ss.Loader(made, num_workers=2, multiprocessing_context="fork")

    whole = [ids_of(batch) for batch in loader()]
    assert set(flat(whole)) <= {n + 3 for n in range(50) if n % 7 < 5}
    first, second = loader(), loader()
    begun = [ids_of(batch) for _, batch in zip(range(3), first, strict=False)]
    second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    assert begun + [ids_of(batch) for batch in second] == whole
    assert set(next(iter(loader()))) == {"__key__", "id"}


@pytest.mark.full
def test_they_go_to_workers_that_do_not_fork(folder: Path) -> None:
    made = dataset(folder, exclude_keys=["k000004"]).filter({"id": lambda numbers: numbers < 9})
    made = made.map(partial(plus, 3)).rename({"id": "number"}).map(rename_back).select("id")
    loader = ss.Loader(made, num_workers=1, multiprocessing_context="spawn")
    assert ids_of(list(loader)) == [n + 3 for n in range(9) if n != 4]


def rename_back(sample: dict[str, Any]) -> dict[str, Any]:
    return {"__key__": sample["__key__"], "id": sample["number"], "more": 1}


def test_a_filter_looks_at_what_is_stored_wherever_it_stands(folder: Path) -> None:
    asked = {"id": ("<", 10), "cls": [1, 2]}
    one = dataset(folder).map(partial(plus, 100)).filter(asked)
    assert ids_of(list(one)) == [n + 100 for n in range(10) if n % 7 in (1, 2)]
    assert one.fingerprint == dataset(folder, where=asked).fingerprint
    renamed = dataset(folder).rename({"cls": "label"})
    assert ids_of(list(renamed.filter({"cls": 3}))) == [n for n in range(50) if n % 7 == 3]
    hint = r"no field '\w+' is stored(.|\n)*by what decoding or a map makes, use ds\.filter\(ss\.find_rows"
    for view in (renamed, dataset(folder, fields={"label": ss.decode.Call(int, source="cls")}), one):
        with pytest.raises(FieldError, match=hint):
            view.filter({"label": 3})
    for view in (dataset(folder), one):
        with pytest.raises(FieldError, match="did you mean 'cls'"):
            view.filter({"clss": 3})
    with pytest.raises(UsageError, match=r"take\(\) left(.|\n)*ds\.filter\(\.\.\.\)\.take\(n\)"):
        dataset(folder).take(5).filter({"cls": 1})
    with pytest.raises(UsageError, match="name the columns that it looks at"):
        dataset(folder).filter(odd)  # type: ignore[arg-type]


def test_renamed_and_selected_outputs_are_those_that_were(folder: Path) -> None:
    fields = {
        "jpg": RandomResizedCrop(24, flip=True),
        "mask": Mask(source="png", like="jpg"),
        "cls": None,
        "txt": None,
    }
    whole = dataset(folder, fields=fields, batch_size=10, **ORDER)
    names = {"jpg": "image", "mask": "target", "cls": "label"}
    renamed = whole.rename(names)
    selected = whole.rename({"jpg": "cls", "cls": "jpg"}).rename({"cls": "x"}).select("x", "txt").rename({"x": "image"})
    assert list(whole.select("mask", "jpg")._content.parts[0].plan.sources) == ["jpg", "png"]
    for old, new, few in zip(whole, renamed, selected, strict=True):
        assert set(new) == {"__key__", "txt", *names.values()}
        assert set(few) == {"__key__", "txt", "image"}
        for name, other in names.items():
            assert torch.equal(old[name], new[other])
        assert torch.equal(old["jpg"], few["image"])
        assert few["txt"] == old["txt"]
    one = next(iter(whole.map(as_it_is).rename(names).select("image", "label").replace(batch_size=None)))
    assert set(one) == {"__key__", "image", "label"}
    images, targets = next(iter(renamed.to_tuple("image", "target")))
    assert images.shape == (10, 3, 24, 24)
    assert targets.shape == (10, 24, 24)


def test_outputs_renamed_behind_a_map_are_batched_as_what_they_are(tmp_path: Path) -> None:
    shards = numbered([6], jpg=photograph, png=lambda n: labels(), half=float, wide=lambda n: 2**64 - 1 - n)
    shards[0] = [one | {"rows": np.ones(5, np.float32)} for one in shards[0]]
    types = {"id": "int16", "half": "float16", "wide": "uint64", "rows": "array"}
    fields = {"jpg": CenterCrop(24), "mask": Mask(source="png", like="jpg"), "id": np.int32}
    fields |= dict.fromkeys(["half", "wide", "rows"])
    whole = dataset(write_dataset(tmp_path, shards, types=types), fields=fields, batch_size=3)
    names = {"jpg": "image", "mask": "target", "id": "half", "half": "id", "wide": "id64"}
    first, then = next(iter(whole.rename(names).map(as_it_is))), next(iter(whole.map(as_it_is).rename(names)))
    assert set(first) == set(then)
    assert first["image"].shape == (3, 3, 24, 24)
    for name in ("image", "target", "half", "id", "id64"):
        assert first[name].dtype == then[name].dtype
        assert first[name].stride() == then[name].stride()
        assert torch.equal(first[name], then[name])
    made = next(iter(whole.map(as_it_is).select("half").map(from_half)))
    assert (made["id"].dtype, made["id"].tolist()) == (torch.int64, [0, 1 << 40, 2 << 40])  # not what was left out


def from_half(sample: dict[str, Any]) -> dict[str, Any]:
    return {"id": int(sample["half"]) << 40}


def test_sources_of_a_mixture_renamed_behind_a_map_have_one_dtype(tmp_path: Path) -> None:
    narrow = dataset(write_dataset(tmp_path / "a", numbered([20], cls=lambda n: n), types={"cls": "int16"}))
    others = write_dataset(tmp_path / "b", numbered([20], label=lambda n: n << 20), types={"label": "int32"})
    wide = dataset(others, fields=["id", "label"])
    mixed = ss.Mixture({"narrow": narrow.map(as_it_is).rename({"cls": "label"}), "wide": wide}, batch_size=4)
    assert {batch["label"].dtype for batch in mixed} == {torch.int32}


def test_crops_for_the_device_keep_their_names(folder: Path) -> None:
    fields = {"jpg": RandomResizedCrop(24, resize="device"), "cls": None}
    whole = dataset(folder, fields=fields, batch_size=5)
    old, new = (next(iter(one)) for one in (whole, whole.rename({"jpg": "image"})))
    assert [torch.equal(old["jpg"][i], new["image"][i]) for i in range(5)] == [True] * 5


def test_sources_of_a_mixture_can_be_named_alike(folder: Path) -> None:
    one = dataset(folder).rename({"cls": "label"})
    two = dataset(folder, fields={"id": None, "label": ss.decode.Call(negative, source="cls")})
    for batch in ss.Mixture({"one": one, "two": two}, batch_size=10):
        for n, label, source in zip(batch["id"], batch["label"], batch["__source__"], strict=True):
            assert label == (-(n % 7) - 1 if source else n % 7)


def negative(value: Any) -> Any:
    return np.int64(-value - 1)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda ds: ds.map(None), "map needs a function"),
        (lambda ds: ds.map(5), "map needs a function of a sample's dict, got 5"),
        (lambda ds: ds.to_tuple("id").map(odd), r"map needs samples as dicts(.|\n)*to_tuple last"),
        (lambda ds: ds.to_tuple("id").rename({"id": "n"}), "rename needs samples as dicts"),
        (lambda ds: ds.to_tuple("id").select("id"), "select needs samples as dicts"),
        (lambda ds: ds.rename({"idd": "n"}), r"there is no output 'idd'(.|\n)*did you mean 'id'"),
        (lambda ds: ds.rename({"id": "cls"}), "two outputs would have the name 'cls'"),
        (lambda ds: ds.rename({"id": "__key__"}), r"names, got \{'id': '__key__'\}"),
        (lambda ds: ds.rename("id"), "rename needs a dict of names, got 'id'"),
        (lambda ds: ds.rename({"id": 5}), r"rename needs a dict of names, got \{'id': 5\}"),
        (lambda ds: ds.select(), r"select needs names of outputs, got \(\)"),
        (lambda ds: ds.select(["id"]), r"select needs names of outputs, got \(\['id'\],\)"),
        (lambda ds: ds.select("jpg"), r"there is no output 'jpg'(.|\n)*outputs: 'id', 'cls'"),
    ],
)
def test_what_cannot_work_is_refused(folder: Path, act: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        act(dataset(folder))


def test_what_a_mapped_sample_lacks_is_named(folder: Path) -> None:
    for one in (dataset(folder).map(odd).rename({"more": "n"}), dataset(folder).map(odd).select("more")):
        with pytest.raises(UsageError, match=r"no 'more' to select or rename(.|\n)*there are __key__, id, cls"):
            list(one)
    with pytest.raises(UsageError, match="two entries would have the name 'cls'"):
        list(dataset(folder).map(odd).rename({"id": "cls"}))
    with pytest.raises(UsageError, match="two entries would have the name 'x'"):
        list(dataset(folder).map(odd).rename({"id": "x", "cls": "x"}))
    with pytest.raises(UsageError, match="it is int"):
        list(dataset(folder).map(lambda sample: sample["id"]).select("id"))
    cropped = dataset(folder, fields={"jpg": CenterCrop(24), "mask": Mask(source="png", like="jpg")})
    with pytest.raises(UsageError, match="'mask' is like 'jpg', so it needs that, too"):
        cropped.select("mask")
    with pytest.raises(TransformError, match=r"transform\[1\].*raised KeyError"):
        list(dataset(folder).map(odd).map(lambda sample: sample["more"]))
