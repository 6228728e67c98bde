"""One list of options: verbs, plans and commands take what `PackOptions` and `RunOptions` hold, with one default."""

from __future__ import annotations

import dataclasses
import inspect
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.cli.flags import Flags
from shardstream.pack.options import PackOptions
from shardstream.pack.repack import repack
from shardstream.pack.run import RunOptions, pack


def defaults(options: type) -> dict[str, Any]:
    given = options()
    return {one.name: getattr(given, one.name) for one in dataclasses.fields(options)}


def keywords(verb: Any) -> dict[str, Any]:
    parameters = inspect.signature(verb).parameters.values()
    return {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}


def test_pack_takes_the_options_and_nothing_else() -> None:
    expected = defaults(PackOptions) | defaults(RunOptions)
    found = keywords(pack)
    assert found.pop("meta") is None
    assert expected.pop("meta") == {}
    assert found == expected


def test_its_signature_and_its_documentation_have_the_order_of_the_options() -> None:
    found = [name for name in keywords(pack) if name in PackOptions.names()]
    assert found == list(PackOptions.names())
    documented = inspect.getdoc(pack) or ""
    places = [documented.index(f"\n    {name}: ") for name in inspect.signature(pack).parameters]
    assert places == sorted(places)
    headings = ("Order and shards:", "Images:", "Distribution:", "Storage:", "Expert:")
    assert [documented.index(f"\n{heading}\n") for heading in headings] == sorted(
        documented.index(f"\n{heading}\n") for heading in headings
    )


def test_the_site_knows_the_headings_of_the_options() -> None:
    site = runpy.run_path(str(Path(__file__).resolve().parents[2] / "tools/site/conf.py"))
    known = {name for name, _ in site["napoleon_custom_sections"]} | {"Args", "Returns", "Raises", "Example"}
    for verb in (pack, repack):
        headings = re.findall(r"^(\w[^:\n]*):$", inspect.getdoc(verb) or "", re.MULTILINE)
        assert set(headings) <= known


def test_a_plan_takes_what_has_a_part_in_what_is_written() -> None:
    found = keywords(ss.pack_plan)
    run = defaults(RunOptions)
    assert {name: run[name] for name in found} == found
    assert set(run) - set(found) == {"workers", "on", "executor", "max_rejects", "progress"}


def test_repack_takes_a_part_of_them_with_other_defaults_only_where_the_data_set_says() -> None:
    expected = defaults(PackOptions) | defaults(RunOptions)
    found = keywords(repack)
    assert set(found) - set(expected) == {"where", "take", "drop_damaged", "version", "cache", "replicas"}
    others = {name for name in set(found) & set(expected) if found[name] != expected[name]}
    assert others == {"format", "meta", "zstd", "shuffle", "jpeg"}


def test_every_option_has_a_flag_but_those_that_only_python_can_give() -> None:
    named = set(Flags.__annotations__)
    assert {*PackOptions.names(), *defaults(RunOptions)} - named == {"executor", "progress"}


@pytest.mark.parametrize("name", ["storage", "shard_sizes", "worker"])
def test_an_unknown_option_of_a_plan_is_named(name: str) -> None:
    with pytest.raises(ss.errors.UsageError, match=name):
        ss.pack_plan("list.tsv", "out", **{name: 1})
