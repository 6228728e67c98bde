"""Lay out the pages for Sphinx: those of docs/ as they are, with lists of pages and a reference from docstrings.

python tools/site/stage.py FOLDER
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import shardstream as ss

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
FIGURE = re.compile(r'<img src="([^"]*)"[^>]* alt="([^"]*)">')


def stage(folder: Path) -> None:
    """Write all sources of the site into an empty folder."""
    shutil.copytree(DOCS, folder, dirs_exist_ok=True)
    (folder / "readme.md").write_text(first_page((ROOT / "README.md").read_text()))
    for page in folder.rglob("*.md"):
        page.write_text(inside(page.read_text(), page.parent, folder))
    index = folder / "index.md"
    parts = re.split(r"(?=^## )", index.read_text(), flags=re.MULTILINE)
    index.write_text(parts[0] + "".join(map(with_list, parts[1:])))
    tables = [f"benchmarks/{path.stem}" for path in sorted((folder / "benchmarks").glob("*.md"))]
    with (folder / "benchmarks.md").open("a") as benchmarks:
        benchmarks.write(f"\n{toctree(tables)}")
    decisions = sorted(path.stem for path in (folder / "decisions").glob("*.md"))
    (folder / "decisions" / "index.md").write_text(f"# Decisions\n\n{toctree(decisions)}")
    (folder / "api.rst").write_text(reference())


def first_page(readme: str) -> str:
    """The README as a page among the others."""
    return FIGURE.sub(r"![\2](\1)", readme).replace("](docs/", "](")


def inside(text: str, here: Path, folder: Path) -> str:
    """A page whose links to files outside of the site are plain text."""

    def link(match: re.Match[str]) -> str:
        path = match[2].partition("#")[0]
        if path == "../README.md":
            return f"[{match[1]}](/readme.md)"
        target = (here / path).resolve()
        if re.match(r"[a-z]+:", match[2]) or not path or (target.is_file() and target.is_relative_to(folder.resolve())):
            return match[0]
        return f"[{match[1]}](/decisions/index.md)" if path == "decisions" else match[1]

    return LINK.sub(link, text)


def with_list(part: str) -> str:
    """A part of the index, with its pages for the sidebar."""
    title = part.splitlines()[0].removeprefix("## ").partition(":")[0]
    pages = [page.lstrip("/").removesuffix(".md") for _, page in LINK.findall(part)]
    if title == "Reference":
        pages.append("api")
    return f"{part}\n{toctree(pages, title)}"


def toctree(pages: list[str], caption: str = "") -> str:
    """A list of pages for the sidebar."""
    options = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
    return "```{toctree}\n" + options + "\n" + "\n".join(pages) + "\n```\n\n"


def reference() -> str:
    """Every public name, from its docstring."""
    text = "Python\n======\n"
    modules = [name for name in dir(ss) if isinstance(getattr(ss, name), ModuleType)]
    text += directives("shardstream", [name for name in dir(ss) if name not in (*modules, "__version__")])
    for name in modules:
        title = f"shardstream.{name}"
        module = getattr(ss, name)
        names = [one for one in dir(module) if not one.startswith("_")]
        if module is ss.errors:
            kinds = {one: getattr(module, one) for one in names}
            names = [one for one, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Exception)]
        text += f"\n{title}\n{'-' * len(title)}\n" + directives(title, names)
    return text


def directives(module: str, names: list[str]) -> str:
    """One for each name; fields of tuples and what errors inherit are told by the class."""
    text = ""
    for name in names:
        value = getattr(sys.modules[module], name)
        text += f"\n.. auto{'class' if isinstance(value, type) else 'function'}:: {module}.{name}\n"
        if isinstance(value, type) and not hasattr(value, "_fields") and not issubclass(value, Exception):
            text += "   :members:\n"
    return text


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
