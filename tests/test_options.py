from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from shardstream.errors import UsageError
from shardstream.options import check_choices, check_taken, option, options_of, takes_flat


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    length: int | None = option(None, "Length of a row.", flag="--rows", metavar="N", least=1)
    pad: int = option(0, "Fills up rows.", flag="--pad", was="row_pad")
    packing: str = option("fit", was="packing", verbs=("store",))

    @classmethod
    def of(cls, length: int) -> RowOptions:
        return cls(length=length)


@takes_flat({"executor": "on"}, rows=RowOptions)
def store(source: str, *, key: str = "path", on: object = None, rows: Any = None) -> dict[str, Any]:
    return {"source": source, "key": key, "on": on, "rows": rows}


class Reading:
    @takes_flat(rows=RowOptions)
    def __init__(self, url: str, *, rows: RowOptions | None = None) -> None:
        self.rows = rows


def test_options_in_objects_pass_without_a_warning() -> None:
    rows = RowOptions(pad=3)
    assert store("list", key="stem", rows=rows) == {
        "source": "list",
        "key": "stem",
        "on": None,
        "rows": rows,
    }


def test_a_call_with_flat_names_warns_once_and_says_how_they_are_written() -> None:
    with pytest.warns(DeprecationWarning, match="one more version") as caught:
        found = store("list", row_pad=3, packing="concat", executor="mine")
    assert found["rows"] == RowOptions(pad=3, packing="concat")
    assert found["on"] == "mine"
    (one,) = caught
    assert str(one.message) == (
        "store(row_pad=, packing=, executor=) works for one more version: "
        "write on=..., rows=RowOptions(pad=..., packing=...)"
    )
    assert one.filename == __file__


def test_flat_names_stand_beside_a_shorthand() -> None:
    with pytest.warns(DeprecationWarning, match=r"rows=RowOptions\(pad=\.\.\.\)"):
        assert store("list", rows=8, row_pad=3)["rows"] == RowOptions(length=8, pad=3)


def test_constructors_take_flat_names_too() -> None:
    with pytest.warns(DeprecationWarning, match=r"^Reading\(row_pad=\)"):
        assert Reading("url", row_pad=3).rows == RowOptions(pad=3)
    with pytest.raises(UsageError, match="Reading takes no argument 'packing'"):
        Reading("url", packing="fit")


@pytest.mark.parametrize(
    ("given", "what", "hint"),
    [
        ({"keys": "stem"}, "store takes no argument 'keys'", "did you mean 'key'"),
        ({"packin": "fit"}, "store takes no argument 'packin'", r"did you mean rows=RowOptions\(packing=\.\.\.\)"),
        ({"xyz": 1}, "store takes no argument 'xyz'", "hint: see help"),
        ({"rows": RowOptions(), "row_pad": 1}, r"store got row_pad= and rows=RowOptions\(\.\.\.\)", "old form"),
        ({"on": 1, "executor": 1}, "store got executor= and on=", "old form"),
    ],
)
def test_unknown_names_and_both_forms_at_once_are_refused(given: dict[str, Any], what: str, hint: str) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        store("list", **given)
    assert caught.match(hint)


def test_options_that_a_verb_does_not_take_are_refused_if_they_are_set() -> None:
    check_taken(RowOptions(pad=3), "read", by="rows")
    check_taken(None, "read", by="rows")
    check_taken(RowOptions(packing="concat"), "store", by="rows")
    with pytest.raises(UsageError, match=r"read takes no rows=RowOptions\(packing=\.\.\.\)") as caught:
        check_taken(RowOptions(packing="concat"), "read", by="rows")
    assert caught.match("an option of store")


def test_fields_say_what_they_are_and_signatures_stay_readable() -> None:
    length = options_of(RowOptions)["length"]
    assert (length.flag, length.metavar, length.least, length.was) == ("--rows", "N", 1, "length")
    assert list(inspect.signature(store).parameters) == ["source", "key", "on", "rows"]
    assert str(inspect.signature(Reading)) == "(url: 'str', *, rows: 'RowOptions | None' = None) -> 'None'"


def test_choices_are_those_of_the_types() -> None:
    @dataclass(frozen=True)
    class Choices:
        long: Literal["split", "reject", "truncate"] = "split"
        labels: Literal["int", "name"] | None = None
        pad: int | Literal["auto"] = 0

    check_choices(Choices(labels="int", pad=7))
    with pytest.raises(UsageError, match="long must be 'split', 'reject' or 'truncate', got 'cut'"):
        check_choices(Choices(long="cut"))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="labels must be 'int' or 'name', got 'float'"):
        check_choices(Choices(labels="float"))  # type: ignore[arg-type]
