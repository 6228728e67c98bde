"""What `tools/release.py` finds in packages that are not as they should be; `tools/release --check` builds ours."""

from __future__ import annotations

import importlib
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest

import shardstream

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
URL = "https://example.org/us/it"

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(ROOT / "tools"))
    release = importlib.import_module("release")


def test_links_of_the_readme_become_absolute() -> None:
    readme = (
        "[a](docs/a.md#b), [c](https://c.org/), [d](#d), ![e](docs/e.png)\n"
        '<a href="x"><img width="9" src="docs/f.svg"></a>'
    )
    assert release.absolute(readme, URL, "1.2") == (
        f"[a]({URL}/blob/v1.2/docs/a.md#b), [c](https://c.org/), [d](#d), ![e]({URL}/raw/v1.2/docs/e.png)\n"
        f'<a href="x"><img width="9" src="{URL}/raw/v1.2/docs/f.svg"></a>'
    )
    ours = (ROOT / "README.md").read_text()
    assert len(release.relative_links(ours)) > 20
    assert not release.relative_links(release.absolute(ours, URL, "1.2"))


def test_the_tree_names_one_version() -> None:
    assert release.version_of(ROOT) == shardstream.__version__
    findings = release.Findings()
    release.look_at_tree(findings, ROOT, shardstream.__version__, URL)
    assert not findings.wrong


@pytest.mark.parametrize(
    ("changelog", "wrong", "still_open"),
    [
        ("## [Unreleased]\n\n## [1.2] - 2026-01-01\n\n## [1.1] - 2025-01-01\n", [], []),
        ("## [Unreleased]\n", [], ["CHANGELOG.md: name what is under [Unreleased] [1.2], with the day"]),
        ("## [1.3] - 2026-02-01\n\n## [1.2] - 2026-01-01\n", ["CHANGELOG.md: [1.2] is not the newest section"], []),
    ],
)
def test_the_changelog_has_the_version_first(
    tmp_path: Path, changelog: str, wrong: list[str], still_open: list[str]
) -> None:
    (tmp_path / "CITATION.cff").write_text("version: 1.2\n")
    (tmp_path / "CHANGELOG.md").write_text(changelog)
    findings = release.Findings()
    release.look_at_tree(findings, tmp_path, "1.2", URL)
    assert (findings.wrong, findings.open) == (wrong, still_open)


def test_another_version_to_cite_and_no_address_are_found(tmp_path: Path) -> None:
    (tmp_path / "CITATION.cff").write_text("version: 1.1\n")
    (tmp_path / "CHANGELOG.md").write_text("## [1.2]\n")
    findings = release.Findings()
    release.look_at_tree(findings, tmp_path, "1.2", None)
    assert findings.wrong == ["CITATION.cff: the version is not 1.2"]
    assert findings.open == ['pyproject.toml: set the address, [project.urls] Repository = "https://HOST/OWNER/NAME"']


def test_the_address_is_in_one_place_and_gives_all_others(tmp_path: Path) -> None:
    project = (ROOT / "pyproject.toml").read_text()
    for stub in ("# [project.urls]", '# Repository = "https://HOST/OWNER/shardstream"'):
        assert f"\n{stub}\n" in project
        project = project.replace(stub, stub[2:].replace("https://HOST/OWNER/shardstream", URL))
    (tmp_path / "pyproject.toml").write_text(project)
    (tmp_path / "README.md").write_text("[a](docs/a.md)\n")
    assert release.address_of(tmp_path) == URL
    release.add_addresses(tmp_path, URL, "1.2")
    assert tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]["urls"] == {
        "Repository": URL,
        "Documentation": f"{URL}/blob/v1.2/docs/index.md",
        "Changelog": f"{URL}/blob/v1.2/CHANGELOG.md",
    }
    assert (tmp_path / "README.md").read_text() == f"[a]({URL}/blob/v1.2/docs/a.md)\n"


def test_a_wheel_with_tests_and_without_a_module_is_found(tmp_path: Path) -> None:
    wheel = tmp_path / "shardstream-1.2-py3-none-any.whl"
    info = "shardstream-1.2.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("METADATA", "RECORD", "WHEEL", "licenses/LICENSE"):
            archive.writestr(f"{info}/{name}", "Name: shardstream\nVersion: 1.1\n\n[a](docs/a.md)\n")
        archive.writestr(f"{info}/entry_points.txt", "")
        archive.writestr("shardstream-1.2.data/data/share/man/man1/shardstream.1", "")
        archive.writestr("shardstream/__init__.py", "")
        archive.writestr("tests/test_it.py", "")
    findings = release.Findings()
    release.look_at_wheel(findings, wheel, ["shardstream/__init__.py", "shardstream/text.py", "README.md"], "1.2")
    assert {
        "there is no py.typed",
        f"{wheel.name}: too much is tests/test_it.py",
        f"{wheel.name}: missing is shardstream/text.py",
        f"{wheel.name}: it has no command",
        "the metadata say Version: 1.1, and not 1.2",
    } <= set(findings.wrong)
    findings = release.Findings()
    release.look_at_addresses(findings, wheel, URL)
    assert findings.wrong == [
        "the metadata do not name the address",
        "links of the README lead nowhere: docs/a.md",
    ]


def test_metadata_that_lack_a_requirement_are_found() -> None:
    metadata = Message()
    for name, value in (
        *(("Requires-Dist", one) for one in PROJECT["dependencies"][1:]),
        *(("Provides-Extra", one) for one in PROJECT["optional-dependencies"]),
        *(("Classifier", one) for one in PROJECT["classifiers"]),
        ("Name", PROJECT["name"]),
        ("Version", "1.2"),
        ("Summary", PROJECT["description"]),
        ("License-Expression", PROJECT["license"]),
        ("Requires-Python", PROJECT["requires-python"]),
        ("Description-Content-Type", "text/markdown"),
    ):
        metadata[name] = value
    findings = release.Findings()
    release.look_at_metadata(findings, metadata, PROJECT, "1.2")
    assert findings.wrong == ["what it needs: missing is torch>=2.4"]
