"""The extras that messages name are declared, and bring what they are said to bring."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, packages_distributions
from pathlib import Path

import pytest

from shardstream.extras import install_command

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
GROUPS = PROJECT["dependency-groups"]
# What nobody gets who does not name it: image decoders, each of which can harm what is installed (pyproject.toml says
# how), pi-heif, which is not looked after any more, kornia, packages of formats that are only packed and tokenizers,
# which few need, the packages of fsspec for stores that `s3`, `azure` and `gcs` serve, and clusters, which who has one
# has.
ENGINES = {"dask", "ray", "spark"}
ON_REQUEST = {
    "simd",
    "opencv",
    "imageio",
    "torchvision",
    "heif",
    "kornia",
    "zarr",
    "lance",
    "array-record",
    "text",
    "chat",
    "s3fs",
    "adlfs",
    "gcsfs",
    *ENGINES,
}


def name_of(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match.group()).lower()


def required() -> Iterator[tuple[str, str | None, str]]:
    """(place, module, extra) of every call of ``extras.require``; no module where a loop goes through several."""
    for path in sorted((ROOT / "shardstream").rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "require(" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("require", "extras.require"):
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                extra = next(keyword.value for keyword in node.keywords if keyword.arg == "extra")
                assert isinstance(extra, ast.Constant), (
                    f"{place}: the extra has to be a literal, so that this test sees it"
                )
                yield place, node.args[0].value if isinstance(node.args[0], ast.Constant) else None, extra.value


def test_extras_named_by_the_code_are_declared_and_bring_the_module() -> None:
    distributions = packages_distributions()
    found = list(required())
    assert found, "nothing was found to check"
    for place, module, extra in found:
        assert extra in EXTRAS, f"{place}: no extra is called {extra!r}"
        if module is None:
            continue
        brings = {name_of(requirement) for requirement in EXTRAS[extra]}
        top = module.split(".")[0]
        # What is not in the environment of the tests is taken to be called like its module.
        homes = {name_of(home) for home in distributions.get(top, [top])}
        assert homes & brings, f"{place}: the extra {extra!r} does not bring {module}"


def test_extras_named_in_text_are_declared() -> None:
    folders = ("shardstream", "examples", "tools", "docs")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md", ".sh")]
    for path in [*paths, *ROOT.glob("*.md")]:
        for names in re.findall(r"shardstream\[([a-z0-9, ]+)\]", path.read_text()):
            unknown = {name.strip() for name in names.split(",")} - set(EXTRAS)
            assert not unknown, f"{path.relative_to(ROOT)} names {unknown}"


def test_all_brings_every_extra_but_other_image_decoders() -> None:
    (requirement,) = EXTRAS["all"]
    match = re.fullmatch(r"shardstream\[([a-z0-9,]+)\]", requirement)
    assert match
    assert set(match.group(1).split(",")) == set(EXTRAS) - {"all"} - ON_REQUEST


def test_pillow_and_pillow_simd_never_come_together() -> None:
    bringing = {extra for extra, needs in EXTRAS.items() if "pillow" in map(name_of, needs)}
    assert bringing == {"pillow"}
    assert [name_of(requirement) for requirement in EXTRAS["simd"]] == ["pillow-simd"]


def test_every_tool_has_an_exact_version() -> None:
    pinned = {
        name_of(line)
        for path in ("tools/constraints.txt", "tools/constraints-engines.txt", "tools/constraints-frameworks.txt")
        for line in (ROOT / path).read_text().splitlines()
        if re.fullmatch(r"[A-Za-z0-9._-]+==[0-9.]+", line)
    }
    wanted = {name_of(entry) for group in GROUPS.values() for entry in group if isinstance(entry, str)}
    wanted |= {name_of(entry) for extra in set(EXTRAS) - {"simd", "torchvision", "all"} for entry in EXTRAS[extra]}
    wanted |= {name_of(entry) for entry in PROJECT["project"]["dependencies"]} - {"torch"}
    assert wanted <= pinned


def stated_license(package: str) -> str | None:
    """What an installed package says of its license, as the table of docs/install.md has it."""
    try:
        found = metadata(package)
    except PackageNotFoundError:
        return None
    classifiers = [one for one in found.get_all("Classifier", []) if one.startswith("License")]
    text = " ".join([found["License-Expression"] or found["License"] or "", *classifiers])
    known = {"LGPL": "LGPL-3.0", "Apache": "Apache-2.0", "BSD": "BSD", "MIT": "MIT", "zlib": "zlib"}
    return next((name for word, name in known.items() if word.lower() in text.lower()), text)


def test_the_license_of_everything_that_is_installed_with_us_is_told() -> None:
    table = (ROOT / "docs/install.md").read_text().partition("## Licenses\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")][1:]
    told = {
        name_of(package): cells[0].strip(" ,").split(",")[0]
        for cells in rows
        for package in re.findall("`([^`]+)`", " ".join(cells[1:]))
    }
    needed = [*PROJECT["project"]["dependencies"], *(one for extra in EXTRAS.values() for one in extra)]
    packages = {name_of(one) for one in needed} - {"shardstream"}
    assert set(told) == packages
    found = {package: stated for package in packages if (stated := stated_license(package)) is not None}
    assert found == {package: told[package] for package in found}


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, 'pip install "shardstream[zarr]"'),
        ('{"url": "file:///srv/a%20b", "dir_info": {"editable": true}}', 'pip install -e "/srv/a b[zarr]"'),
        ('{"url": "file:///srv/it", "dir_info": {}}', 'pip install "shardstream[zarr] @ file:///srv/it"'),
        (
            '{"url": "https://a.org/it", "vcs_info": {"vcs": "git", "commit_id": "1f"}}',
            'pip install "shardstream[zarr] @ git+https://a.org/it@1f"',
        ),
    ],
)
def test_hints_install_extras_from_where_the_package_came(
    origin: str | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.PathDistribution.read_text", lambda _self, _name: origin)
    assert install_command("zarr") == command
