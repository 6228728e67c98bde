"""One table of options: verbs and commands take what the dataclasses hold, and flat names for one more version."""

from __future__ import annotations

import dataclasses
import inspect
import pydoc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.cli.flags import Flags, flags_of
from shardstream.errors import UsageError
from shardstream.options import options_of, takes_flat
from shardstream.pack.options import OF_PACK, PackOptions
from shardstream.pack.repack import repack
from shardstream.pack.run import RunOptions, pack

from .making import photo_list, tree

VERBS: dict[str, Any] = {
    name: getattr(ss, name) for name in ("pack", "pack_plan", "repack", "merge", "export", "ShardWriter")
}


def defaults(options: type) -> dict[str, Any]:
    given = options()
    return {one.name: getattr(given, one.name) for one in dataclasses.fields(options)}


def keywords(verb: Any) -> dict[str, Any]:
    parameters = inspect.signature(verb).parameters.values()
    return {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}


def test_pack_takes_the_options_and_nothing_else() -> None:
    expected = defaults(PackOptions) | defaults(RunOptions)
    objects = {*OF_PACK, "meta"}
    assert {name: value for name, value in keywords(pack).items() if name not in objects} == {
        name: value for name, value in expected.items() if name not in objects
    }
    assert set(keywords(pack)) == set(expected)
    assert {keywords(pack)[name] for name in objects} == {None}


@pytest.mark.parametrize("verb", [pack, repack])
def test_people_can_read_the_call(verb: Any) -> None:
    named = [one for one in inspect.signature(verb).parameters.values() if one.kind is not one.VAR_KEYWORD]
    assert len(named) <= 24
    documented = inspect.getdoc(verb) or ""
    places = [documented.index(f"\n    {name}: ") for name in inspect.signature(verb).parameters]
    assert places == sorted(places)
    assert len(pydoc.plain(pydoc.render_doc(verb)).splitlines()) <= 100  # two screens


@pytest.mark.parametrize("kind", [ss.ShardDataset, ss.Mixture, ss.Loader, ss.Reader, ss.ShardWriter])
def test_what_a_class_says_of_its_arguments_fits_two_screens(kind: type) -> None:
    documented = (inspect.getdoc(kind) or "").splitlines()
    assert len(documented) <= 100
    assert [line for line in documented if line.endswith((": The same.", ": They.", ": Theirs."))] == []


def test_a_plan_takes_what_has_a_part_in_what_is_written() -> None:
    found = keywords(ss.pack_plan)
    assert set(defaults(RunOptions)) - set(found) == {"workers", "on", "progress"}


def test_repack_takes_a_part_of_them_with_other_defaults_only_where_the_dataset_says() -> None:
    expected = defaults(PackOptions) | defaults(RunOptions)
    found = keywords(repack)
    assert set(found) - set(expected) == {"where", "take", "drop_damaged", "version"}
    others = {name for name in set(found) & set(expected) - {*OF_PACK, "meta"} if found[name] != expected[name]}
    assert others == {"format", "shuffle"}


def test_every_option_has_a_flag_of_its_own_with_help() -> None:
    flags = [said.flag.partition("/")[0] for table in OF_PACK.values() for said in options_of(table).values()]
    assert len(flags) == len(set(flags))
    assert all(flag.startswith("--") for flag in flags)
    assert all(said.help for table in OF_PACK.values() for said in options_of(table).values())
    plain = {*options_of(PackOptions), *options_of(RunOptions), *Flags.__annotations__}
    assert {*PackOptions.names(), *defaults(RunOptions)} - plain == {*OF_PACK, "progress"}
    assert "replicas" not in flags_of(ss.StorageOptions, "pack")
    assert "replicas" in flags_of(ss.StorageOptions, "repack")


@pytest.mark.parametrize("table", OF_PACK.values())
def test_every_field_is_described(table: type) -> None:
    text = inspect.getdoc(table) or ""
    assert [one.name for one in dataclasses.fields(table) if f"\n    {one.name}: " not in text] == []


# ------------------------------------------------------------------------------------------------------- flat names

GROUPS: dict[str, dict[str, type]] = {
    verb: getattr(function, "groups", None) or function.__init__.groups for verb, function in VERBS.items()
}
CASES = [
    (verb, said.was, argument, name)
    for verb, groups in GROUPS.items()
    for argument, table in groups.items()
    for name, said in options_of(table).items()
    if said.was != argument and (not said.verbs or verb in said.verbs)
]


def stub(verb: str) -> Any:
    """Takes what a verb takes, and returns it."""

    def taken(*_args: Any, **given: Any) -> dict[str, Any]:
        return {name: value for name, value in given.items() if name in GROUPS[verb]}

    taken.__qualname__ = verb
    taken.__signature__ = inspect.signature(VERBS[verb])  # type: ignore[attr-defined]
    return takes_flat({"executor": "on"}, PackOptions.names(), **GROUPS[verb])(taken)


@pytest.mark.parametrize(("verb", "flat", "argument", "name"), CASES)
def test_each_flat_name_is_taken_with_one_warning_that_says_how_it_is_written(
    verb: str, flat: str, argument: str, name: str
) -> None:
    table: Any = GROUPS[verb][argument]
    value = {one.name: one.default for one in dataclasses.fields(table)}[name]
    bins = {"bins": 64} if argument == "bins" else {}
    with pytest.warns(DeprecationWarning, match="one more version") as caught:
        found = stub(verb)("in", "out", **bins, **{flat: value})
    assert found == {argument: table(64) if bins else table()}
    (one,) = caught
    assert str(one.message).startswith(f"{verb}({flat}=) works")
    assert str(one.message).endswith(f"write {argument}={table.__name__}({name}=...)")
    if not bins:
        with pytest.raises(UsageError, match=f"{verb} got {flat}= and {argument}={table.__name__}"):
            stub(verb)("in", "out", **{argument: table(), flat: value})


def test_flat_names_make_the_same_bytes(tmp_path: Path) -> None:
    source = photo_list(tmp_path / "in", 6)
    with pytest.warns(
        DeprecationWarning, match=r"images=ImageOptions\(jpeg=..., max_side=...\), shards=ShardOptions\(key"
    ):
        ss.pack(source, tmp_path / "old", workers=0, jpeg="keep", key_table=False, max_side=20)
    images, shards = ss.ImageOptions(jpeg="keep", max_side=20), ss.ShardOptions(key_table=False)
    ss.pack(source, tmp_path / "new", workers=0, images=images, shards=shards)
    assert tree(tmp_path / "old") == tree(tmp_path / "new")
    warns = pytest.warns(DeprecationWarning, match=r"repack\(executor=, zstd=, storage_options=\) works")
    with warns, ThreadPoolExecutor(1) as pool:
        ss.repack(tmp_path / "new", tmp_path / "again", executor=pool, zstd=None, storage_options=None)
    now = r"images=ImageOptions\(check=...\), shards=ShardOptions\(checksums=...\)$"
    with pytest.warns(DeprecationWarning, match=now):
        writer = ss.ShardWriter(tmp_path / "written", check="decode", checksums=False)
    with writer:
        writer.write({"__key__": "a", "cls": 1})
    with pytest.raises(UsageError, match=r"ShardWriter takes no images=ImageOptions\(max_side=\.\.\.\)"):
        ss.ShardWriter(tmp_path / "more", images=ss.ImageOptions(max_side=20))


@pytest.mark.parametrize(
    ("verb", "given", "what", "hint"),
    [
        ("pack", {"max_sied": 1}, "pack takes no argument 'max_sied'", r"did you mean images=ImageOptions\(max_side="),
        ("pack", {"worker": 1}, "pack takes no argument 'worker'", "did you mean 'workers'"),
        ("pack_plan", {"shard_sizes": 1}, "pack_plan takes no argument 'shard_sizes'", "did you mean 'shard_size'"),
        ("repack", {"check": "decode"}, "repack takes no argument 'check'", "help"),
        ("merge", {"zstd": ["a"]}, "merge takes no argument 'zstd'", "help"),
        ("pack", {"images": {"max_side": 1}}, "images must be ImageOptions", r"images=ss.ImageOptions\(jpeg=...\)"),
        ("pack", {"storage": ss.StorageOptions(cache="x")}, "pack takes no storage=StorageOptions", "of repack and"),
        ("ShardWriter", {"shards": ss.ShardOptions(rows=True)}, r"no shards=ShardOptions\(rows=", "of pack and"),
    ],
    ids=str,
)
def test_what_a_verb_does_not_take_is_named(verb: str, given: dict[str, Any], what: str, hint: str) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        VERBS[verb]("in", "out", **given)
    assert caught.match(hint)
