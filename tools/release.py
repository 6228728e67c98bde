"""Builds the wheel and the source distribution, and looks at them; `tools/release` runs it in its environment.

- The version stands in ``shardstream/version.py``; CITATION.cff, a section of CHANGELOG.md and the tag have the same.
- Two builds, of copies of the tree that differ in all but what the files hold, are equal to the byte, and the source
  distribution builds the same wheel.
- The wheel holds the package whole, ``py.typed``, the license, the command and its manual page, and nothing else; the
  source distribution holds all that is tracked, and a slice of the tests passes in it, with its own package.
- The metadata say what pyproject.toml says, and pass ``twine check --strict``.
- ``Repository`` under ``[project.urls]`` in pyproject.toml is the one place that says where the project is. With it the
  links of the README become absolute, in the form that GitHub and GitLab have.
"""

from __future__ import annotations

import argparse
import email.message
import email.parser
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SLICE = (
    "tests/golden",
    "tests/shards",
    "tests/formats/test_mds.py",
    "tests/project/test_tree.py",
    "tests/project/test_readme.py",
)
"""Tests that run from the unpacked source distribution: those of files that only it could lack."""
_MANUAL = "share/man/man1/shardstream.1"


@dataclass
class Findings:
    """What was found: ``wrong`` has to be mended, ``open`` is still to be done before a release."""

    wrong: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def expect(self, fits: bool, what: str) -> None:
        """It is wrong where it does not fit."""
        if not fits:
            self.wrong.append(what)

    def same(self, what: str, found: Iterable[str], wanted: Iterable[str]) -> None:
        """Both name the same things."""
        found, wanted = set(found), set(wanted)
        if found - wanted:
            self.wrong.append(f"{what}: too much is {', '.join(sorted(found - wanted)[:5])}")
        if wanted - found:
            self.wrong.append(f"{what}: missing is {', '.join(sorted(wanted - found)[:5])}")


# ------------------------------------------------------------------------------------------------------------ the tree


def version_of(root: Path) -> str:
    """The version, from the one place where it stands."""
    found = re.search(r'^__version__ = "([^"]+)"$', (root / "shardstream/version.py").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit("shardstream/version.py has no __version__")
    return found[1]


def address_of(root: Path) -> str | None:
    """Where the project is; None if that is not said yet."""
    urls = tomllib.loads((root / "pyproject.toml").read_text())["project"].get("urls", {})
    return urls["Repository"].rstrip("/") if "Repository" in urls else None


def git(*arguments: str) -> str:
    """What git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def look_at_tree(findings: Findings, root: Path, version: str, base_url: str | None) -> None:
    """The files that name the version, and what a release still lacks."""
    cited = re.search(r"^version: (.*)$", (root / "CITATION.cff").read_text(), re.MULTILINE)
    findings.expect(cited is not None and cited[1] == version, f"CITATION.cff: the version is not {version}")
    sections = re.findall(r"^## \[([^\]]+)\]", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    if version not in sections:
        findings.open.append(f"CHANGELOG.md: name what is under [Unreleased] [{version}], with the day")
    elif next(name for name in sections if name != "Unreleased") != version:
        findings.wrong.append(f"CHANGELOG.md: [{version}] is not the newest section")
    if base_url is None:
        findings.open.append('pyproject.toml: set the address, [project.urls] Repository = "https://HOST/OWNER/NAME"')


def look_at_history(findings: Findings, version: str) -> None:
    """What is committed, and its tag."""
    if git("status", "--porcelain"):
        findings.open.append("files that are not committed: git status")
    tagged = git("tag", "--points-at", "HEAD").split()
    if f"v{version}" not in tagged:
        elsewhere = f"v{version}" in git("tag", "--list", f"v{version}").split()
        what = "is that of another commit: raise the version" if elsewhere else f"is to be set: git tag v{version}"
        findings.open.append(f"the tag v{version} {what}")


def copy_tree(target: Path, tracked: Iterable[str]) -> None:
    """Copy the tracked files, with the right to be run."""
    for name in tracked:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target / name)


def absolute(readme: str, base_url: str, version: str) -> str:
    """The README with links that work outside of the project."""
    pages, files = f"{base_url}/blob/v{version}/", f"{base_url}/raw/v{version}/"
    readme = re.sub(r"(!\[[^\]]*\]\()(?![a-z]+:|#)", rf"\g<1>{files}", readme)
    readme = re.sub(r"((?<!!)\[[^\]]*\]\()(?![a-z]+:|#)", rf"\g<1>{pages}", readme)
    return re.sub(r'(<img [^>]*?src=")(?![a-z]+:)', rf"\g<1>{files}", readme)


def relative_links(readme: str) -> list[str]:
    """The links of a README that lead to files beside it."""
    return re.findall(r'(?:\]\(|src=")((?![a-z]+:|#)[^)"]+)', readme)


def add_addresses(tree: Path, base_url: str, version: str) -> None:
    """Say in a copy of the tree where the project lives."""
    readme, project = tree / "README.md", tree / "pyproject.toml"
    readme.write_text(absolute(readme.read_text(), base_url, version))
    pages = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md"}
    lines = "".join(f'{name} = "{base_url}/blob/v{version}/{path}"\n' for name, path in pages.items())
    project.write_text(project.read_text().replace("\n[project.urls]\n", f"\n[project.urls]\n{lines}", 1))


# ------------------------------------------------------------------------------------------------------- what is built


def build(tree: Path, out: Path, *kinds: str) -> list[Path]:
    """Build a tree.

    Args:
        tree: Where pyproject.toml lies.
        out: Where it goes.
        kinds: ``sdist``, ``wheel``.
    """
    program = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), *(f"--{kind}" for kind in kinds)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct").strip()}
    done = subprocess.run([*program, str(tree)], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}it does not build")
    return sorted(out.iterdir())


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def look_at_builds(findings: Findings, first: list[Path], work: Path, second_tree: Path) -> None:
    """Whether they are built again to the byte, from another copy of the tree and from the source distribution."""
    for path in second_tree.rglob("*"):  # another machine has other times and rights
        os.utime(path, (1_000_000_000, 1_000_000_000))
        path.chmod(path.stat().st_mode & 0o700)
    for one, again in zip(first, build(second_tree, work / "again", "sdist", "wheel"), strict=True):
        findings.expect(digest(one) == digest(again), f"{one.name}: two builds differ")
    sdist, wheel = sorted(first, key=lambda path: path.suffix)
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian 12's Python has none
        archive.extractall(work / "unpacked")  # noqa: S202 # what was built just now
    (unpacked,) = (work / "unpacked").iterdir()
    (rebuilt,) = build(unpacked, work / "rebuilt", "wheel")
    findings.expect(digest(wheel) == digest(rebuilt), f"{sdist.name}: it builds another wheel")


def look_at_wheel(findings: Findings, wheel: Path, tracked: Iterable[str], version: str) -> None:
    """Whether it holds the package whole and nothing else, and what its metadata say."""
    info, data = f"shardstream-{version}.dist-info", f"shardstream-{version}.data"
    wanted = {name for name in tracked if name.startswith("shardstream/")}
    findings.expect("shardstream/py.typed" in wanted, "there is no py.typed")
    wanted |= {f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")}
    wanted.add(f"{data}/data/{_MANUAL}")
    with zipfile.ZipFile(wheel) as archive:
        findings.same(wheel.name, archive.namelist(), wanted)
        metadata = email.parser.BytesParser().parsebytes(archive.read(f"{info}/METADATA"))
        commands = archive.read(f"{info}/entry_points.txt").decode()
    findings.expect("shardstream = shardstream.cli:main" in commands, f"{wheel.name}: it has no command")
    look_at_metadata(findings, metadata, tomllib.loads((ROOT / "pyproject.toml").read_text())["project"], version)


def look_at_metadata(
    findings: Findings, metadata: email.message.Message, project: dict[str, Any], version: str
) -> None:
    """Whether they say what pyproject.toml does."""
    extras = project["optional-dependencies"]
    said = {
        "Name": project["name"],
        "Version": version,
        "Summary": project["description"],
        "License-Expression": project["license"],
        "Requires-Python": project["requires-python"],
        "Description-Content-Type": "text/markdown",
    }
    for name, value in said.items():
        findings.expect(metadata[name] == value, f"the metadata say {name}: {metadata[name]}, and not {value}")
    findings.same("extras", metadata.get_all("Provides-Extra", []), extras)
    findings.same("classifiers", metadata.get_all("Classifier", []), project["classifiers"])
    needed = {one for one in metadata.get_all("Requires-Dist", []) if "extra ==" not in one}
    findings.same("what it needs", map(_squeezed, needed), map(_squeezed, project["dependencies"]))


def _squeezed(requirement: str) -> str:
    return re.sub(r"\s", "", requirement).lower()


def look_at_addresses(findings: Findings, wheel: Path, base_url: str | None) -> None:
    """Whether the metadata lead to the project, and nothing in them to a file that is not there."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    if base_url is None:
        findings.expect("Project-URL" not in text, "the metadata have an address that nobody gave")
        return
    findings.expect(f"Project-URL: Repository, {base_url}\n" in text, "the metadata do not name the address")
    links = relative_links(text.partition("\n\n")[2])
    findings.expect(not links, f"links of the README lead nowhere: {', '.join(links[:5])}")


def look_at_sdist(findings: Findings, sdist: Path, tracked: Iterable[str]) -> None:
    """Whether it holds all that is tracked."""
    wanted = {*tracked, "PKG-INFO"}
    with tarfile.open(sdist) as archive:
        findings.same(sdist.name, (name.partition("/")[2] for name in archive.getnames()), wanted)


def run_slice(findings: Findings, unpacked: Path) -> None:
    """Whether tests pass in an unpacked source distribution, with the packages of .venv and nothing of this tree."""
    program = [str(ROOT / ".venv/bin/python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", *SLICE]
    done = subprocess.run(program, cwd=unpacked, capture_output=True, text=True, check=False)
    print("tests of the source distribution:", done.stdout.rstrip().rpartition("\n")[2])
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    findings.expect(
        done.returncode == 0, f"tests of the source distribution fail: {', '.join(failed[:5]) or done.stderr}"
    )


def main() -> int:
    """Build, look, and say what was found."""
    parser = argparse.ArgumentParser(prog="tools/release", description="Build the packages and look at them.")
    parser.add_argument("--check", action="store_true", help="leave nothing behind")
    given = parser.parse_args()
    base_url = address_of(ROOT)
    version, findings = version_of(ROOT), Findings()
    tracked = [name for name in git("ls-files").splitlines() if (ROOT / name).exists()]
    look_at_tree(findings, ROOT, version, base_url)
    look_at_history(findings, version)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for name in ("tree", "other"):
            copy_tree(work / name, tracked)
            if base_url is not None:
                add_addresses(work / name, base_url, version)
        built = build(work / "tree", work / "built", "sdist", "wheel")
        sdist, wheel = sorted(built, key=lambda path: path.suffix)
        look_at_builds(findings, built, work, work / "other")
        look_at_wheel(findings, wheel, tracked, version)
        look_at_addresses(findings, wheel, base_url)
        look_at_sdist(findings, sdist, tracked)
        (unpacked,) = (work / "unpacked").iterdir()
        run_slice(findings, unpacked)
        twine = [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *map(str, built)]
        done = subprocess.run(twine, capture_output=True, text=True, check=False)
        findings.expect(not done.returncode, f"twine check: {' '.join(done.stdout.split())}")
        for path in built:
            print(f"{digest(path)}  {path.name}  {path.stat().st_size:,} bytes")
        for what in findings.wrong:
            print(f"wrong  {what}")
        for what in findings.open:
            print(f"open   {what}")
        if findings.wrong or given.check:
            return bool(findings.wrong)
        if findings.open:
            return 1
        leave(built, git("rev-parse", "HEAD").strip())
    return 0


def leave(built: list[Path], commit: str) -> None:
    """Put what was built into dist/, with its checksums and the commit that it was built from."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    for path in built:
        shutil.copyfile(path, dist / path.name)
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in built)
    (dist / "SHA256SUMS").write_text(f"# built from commit {commit}\n{sums}")
    print("they lie in dist/, with SHA256SUMS")


if __name__ == "__main__":
    sys.exit(main())
