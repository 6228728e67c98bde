"""What is valid and not read is `UnsupportedError`; `FormatError` is for damage."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import shardstream as ss

FORMATS = Path(ss.__file__).parent / "formats"
VALID = re.compile(
    r"not (read|supported|followed|streamed)\b|never run|encrypted|which is not known|not known here|version .* cannot"
)


def texts(node: ast.expr) -> str:
    """The constant parts of an expression."""
    return " ".join(str(one.value) for one in ast.walk(node) if isinstance(one, ast.Constant))


def refusals(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a module that call something damaged, with what they say."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        hinted = any(one.arg == "hint" for one in node.keywords)
        # `refuse` of HDF5 raises UnsupportedError if it has a hint.
        if name in ("FormatError", "damaged") or (name == "refuse" and not (hinted and path.parent.name == "hdf5")):
            yield node.lineno, texts(node.args[0])


def test_no_text_of_a_format_calls_valid_data_damaged() -> None:
    found = [
        f"{path.relative_to(FORMATS)}:{line}: {text}"
        for path in FORMATS.rglob("*.py")
        for line, text in refusals(path)
        if VALID.search(text)
    ]
    assert not found
