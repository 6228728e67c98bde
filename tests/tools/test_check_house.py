"""What `tools/check_house.py` finds in small packages, and what it lets through."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(TOOLS))
    check_house = importlib.import_module("check_house")
    checks = importlib.import_module("house.checks")
    package = importlib.import_module("house.package")

NINE = ", ".join(f"a{number}" for number in range(9))


@pytest.fixture
def build(tmp_path):
    """Writes a package: ``a__b`` is the module ``a/b.py``, ``a__init`` the package ``a``; those not given are empty."""

    def build(**modules: str):
        for name, text in modules.items():
            path = tmp_path.joinpath("shardstream", *name.split("__")).with_suffix(".py")
            path = path.with_name("__init__.py") if path.stem == "init" else path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            for folder in (path.parent, tmp_path / "shardstream"):
                (folder / "__init__.py").touch()
        return package.House(tmp_path)

    return build


@pytest.fixture(autouse=True)
def known_circles(monkeypatch) -> set[tuple[str, str]]:
    """Those of this test: none yet."""
    known: set[tuple[str, str]] = set()
    monkeypatch.setattr(checks, "KNOWN_CIRCLES", known)
    return known


def found(check, house) -> list[str]:
    return [*getattr(checks, check)(house)]


def test_a_folder_holds_twenty_modules_beside_its_init(build):
    full = {f"room__m{number:02}": "" for number in range(20)}
    assert found("crowded_folders", build(**full)) == []
    (finding,) = found("crowded_folders", build(**full, room__zero=""))
    assert finding.startswith("shardstream/room/zero.py: module 21 of 21 in one folder")


def test_the_command_line_has_a_verb_a_file(build):
    assert found("crowded_folders", build(**{f"cli__m{number:02}": "" for number in range(30)})) == []


def test_lines_of_code_are_those_of_the_body(build):
    head = 'def f(\n    a,\n    b,\n):\n    """Two\n\n    lines."""\n    # said\n\n'
    assert found("long_functions", build(a=head + "    a()\n" * 60)) == []
    (finding,) = found("long_functions", build(a="class C:\n    def f(self):\n" + "        a()\n" * 61))
    assert finding == "shardstream/a.py:2: C.f has 61 lines of code, more than 60"


def test_a_statement_of_many_lines_counts_as_many(build):
    (finding,) = found("long_functions", build(a="def f():\n    x = [\n" + "        1,\n" * 59 + "    ]\n"))
    assert "f has 61 lines" in finding


def test_a_class_name_stands_for_one_class(build):
    (finding,) = found("repeated_classes", build(a="class Part: ...", b="\nclass Part: ..."))
    assert finding == "shardstream/a.py:1, shardstream/b.py:2: 2 classes are called Part"


def test_private_classes_may_share_a_name(build):
    assert found("repeated_classes", build(a="class _Part: ...", b="class _Part: ...")) == []


PUBLIC = {
    "init": '__all__ = ["a", "b"]\nfrom shardstream import a, b\n',
    "a__init": '__all__ = ["Crop"]\nfrom shardstream.a.made import Crop\n',
    "a__made": "class Crop: ...",
    "b": '__all__ = ["Crop"]\nclass Crop: ...',
}


def test_public_classes_of_two_rooms_may_share_a_name(build):
    assert found("repeated_classes", build(**PUBLIC)) == []


def test_no_other_class_has_the_name_of_public_ones(build):
    (finding,) = found("repeated_classes", build(**PUBLIC, c="class Crop: ..."))
    assert "3 classes are called Crop" in finding


@pytest.mark.parametrize(
    "signature", ["a0, a1, a2, a3, *, a4, a5, a6, a7, a8", "a, b, c, d, e, f, g, *rest, **more", "a, b, /, " + NINE]
)
def test_signatures_are_narrow(build, signature):
    (finding,) = found("wide_signatures", build(a=f"def f({signature}): ..."))
    assert finding.startswith("shardstream/a.py:1: f has ")


def test_eight_parameters_beside_self_are_not_too_many(build):
    assert found("wide_signatures", build(a="class C:\n    def f(self, a, b, c, d, e, f, g, h): ...")) == []


def test_verbs_commands_kernels_and_orders_may_be_wide(build):
    house = build(
        init='__all__ = ["C", "pack"]\nfrom shardstream.a import C\nfrom shardstream.pack import pack\n',
        a=f"class C:\n    def __init__(self, {NINE}): ...",
        pack__init="from shardstream.pack.pack import pack\n",
        pack__pack=f"def pack({NINE}): ...",
        cli__app='from shardstream.cli import pack\napp.command("pack")(pack.pack)\n',
        cli__pack=f"def pack({NINE}): ...",
        cli__warm=f'@app.command("warm")\ndef warm({NINE}): ...',
        kernels=f"from numba import njit\n@njit\ndef loop({NINE}): ...",
        order__a=f"def f({NINE}): ...",
    )
    assert found("wide_signatures", house) == []


def test_what_is_beside_them_may_not(build):
    house = build(
        init='__all__ = ["C"]\nfrom shardstream.a import C\n',
        a=f"class C:\n    def of(self, {NINE}): ...",
        cli__pack=f"def helper({NINE}): ...",
        kernels=f"from numba import njit\ndef prepare({NINE}): ...",
    )
    names = [finding.split()[1] for finding in found("wide_signatures", house)]
    assert names == ["C.of", "helper", "prepare"]


@pytest.mark.parametrize(
    "back",
    [
        "from shardstream.a import x",
        "from shardstream import a",
        "import shardstream.a",
        "def f():\n    from shardstream.a import x",
        "if TYPE_CHECKING:\n    from shardstream.a import x",
        "def f():\n    import_module('shardstream.a').x",
        "def f():\n    importlib.import_module('.a', __package__).x",
        "LAZY = {'x': 'shardstream.a'}",
        "PROGRAM = 'shardstream.a:main'",
    ],
)
def test_modules_that_import_each_other_are_found(build, back):
    findings = found("circles", build(a="from shardstream.b import y", b=back))
    assert findings == [
        "shardstream/a.py: imports itself: shardstream.a > shardstream.b > shardstream.a",
        "shardstream/b.py: imports itself: shardstream.b > shardstream.a > shardstream.b",
    ]


def test_a_package_is_a_module_too(build):
    house = build(a__init="from shardstream.a.b import x", a__b="from shardstream.a import y")
    assert len(found("circles", house)) == 2


def test_a_package_that_is_entered_is_imported(build):
    house = build(
        a__init="from shardstream.a.b import x", a__b="from shardstream.c import y", c="import shardstream.a.d", a__d=""
    )
    assert [finding.split(":")[0] for finding in found("circles", house)] == [
        "shardstream/a/__init__.py",
        "shardstream/a/b.py",
        "shardstream/c.py",
    ]


def test_imports_that_go_one_way_are_no_circle(build):
    house = build(
        init="from shardstream.a import b",
        a__init="from shardstream.a.b import x",
        a__b="from shardstream.a import c\nfrom shardstream.d import x",
        a__c="",
        d="",
    )
    assert found("circles", house) == []


def test_strings_below_a_package_name_every_module_in_it(build):
    house = build(a="import_module(f'shardstream.c.{name}')", c__d="from shardstream.a import x", c__e="")
    assert [finding.split(":")[0] for finding in found("circles", house)] == ["shardstream/a.py", "shardstream/c/d.py"]


@pytest.mark.parametrize(
    "text",
    [
        "'''shardstream.a and `shardstream.a`.'''",
        "logging.getLogger('shardstream.a')",
        "label = f'shardstream.{name}'",
        "DISTRIBUTION = 'shardstream'",
        "import_module(name)",
    ],
)
def test_other_strings_are_no_imports(build, text):
    house = build(init="from shardstream import b", a="from shardstream.b import y", b=text)
    assert found("circles", house) == []


def test_a_known_circle_is_let_through_until_it_is_gone(build, known_circles):
    known_circles.add(("shardstream.b", "shardstream.a"))
    assert found("circles", build(a="from shardstream.b import y", b="from shardstream.a import x")) == []
    for modules in ({"b": ""}, {"a": "", "b": "from shardstream.a import x"}):
        (finding,) = found("circles", build(**modules))
        assert finding.startswith("tools/house/checks.py: shardstream.b > shardstream.a closes no circle")


STORES = {
    "storage__base": "class Store: ...\nclass AsyncStore(Store): ...",
    "storage__cache": "class CachedStore(base.AsyncStore): ...\nisinstance(x, AsyncStore)",
}


@pytest.mark.parametrize(
    "asks",
    [
        "isinstance(x, CachedStore)",
        "isinstance(x, (int, cache.CachedStore))",
        "isinstance(x, int | CachedStore)",
        "issubclass(x, CachedStore)",
        "match x:\n    case CachedStore():\n        pass",
    ],
)
def test_stores_are_told_apart_in_storage_only(build, asks):
    (finding,) = found("stores_told_apart", build(**STORES, stream__a=asks))
    assert finding.startswith("shardstream/stream/a.py:")
    assert finding.endswith("asks for a store's class, CachedStore")


def test_other_classes_may_be_told_apart(build):
    assert found("stores_told_apart", build(**STORES, stream__a="isinstance(CachedStore(), Storeroom)")) == []


def test_findings_beyond_an_allowance_and_allowances_beyond_findings_are_wrong():
    one = {"circles": ["a.py: imports itself"]}
    assert [*check_house.to_change(one, {"circles": 1})] == []
    assert [*check_house.to_change(one, {})] == ["a.py: imports itself"]
    *findings, total = check_house.to_change({"circles": ["new", "old"]}, {"circles": 1})
    assert findings == ["new", "old"]
    assert "2 findings, 1 allowed" in total
    (finding,) = check_house.to_change(one, {"circles": 3})
    assert "lower it to 1" in finding


def test_figures_count_code_and_the_words_of_public_docstrings(build, tmp_path, capsys):
    build(
        init='"""Not counted."""\n__all__ = ["C"]\nfrom shardstream.a import C\n',
        a='"""No code."""\n# none\n\nclass B:\n    def f(self):\n        """Three more words."""\n'
        'class C(B):\n    """Two words."""\n\n    x = 1\n    """Said of x."""\n'
        '    def _g(self):\n        """Not counted."""\n',
        testing__a="x = 1\n",
    )
    assert check_house.main(["--figures", "--root", str(tmp_path)]) == 0
    figures = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in figures[-3:]] == ["2", "7", "5"]


def test_the_program_says_what_is_wrong_and_fails(build, tmp_path, capsys, monkeypatch):
    build(init='"""The map: a, b."""', a="class Part: ...", b="class Part: ...")
    monkeypatch.setattr(check_house, "ALLOWED", {})
    assert check_house.main(["--root", str(tmp_path)]) == 1
    assert capsys.readouterr().out == "shardstream/a.py:1, shardstream/b.py:1: 2 classes are called Part\n"
    (tmp_path / "shardstream" / "b.py").write_text("")
    assert check_house.main(["--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""
    with pytest.raises(SystemExit):
        check_house.main(["--root", str(tmp_path / "shardstream")])
