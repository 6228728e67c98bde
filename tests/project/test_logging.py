"""Every message of the package's loggers is documented with its level."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEVELS = ("debug", "info", "warning", "error", "exception", "critical")


def messages() -> Iterator[str]:
    """A line of the table for each call of a logger."""
    for path in sorted((ROOT / "shardstream").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        source = path.read_text()
        for node in ast.walk(ast.parse(source)) if re.search(r"\b_?log(ger)?\.", source) else ():
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id in ("logger", "_logger", "_log") and node.func.attr in LEVELS:
                said = node.args[0]
                text = str(said.value) if isinstance(said, ast.Constant) else "(one of several sentences)"
                yield f"| `{name}` | {node.func.attr.upper()} | {text.replace('|', chr(92) + '|')} |"


def test_every_message_is_in_the_table_and_no_other() -> None:
    text = (ROOT / "docs/logging.md").read_text()
    said = sorted(messages())
    assert [line for line in text.splitlines() if line.startswith("| `shardstream")] == said
    assert len(set(said)) > 20


def test_only_the_command_line_adds_a_handler() -> None:
    words = ("addHandler(", "basicConfig(", ".setLevel(")
    sources = {path: path.read_text() for path in (ROOT / "shardstream").rglob("*.py")}
    adding = [path for path, text in sources.items() if any(word in text for word in words)]
    in_workers = "shardstream/stream/iteration/worker_logs.py"  # what they log goes to the training process instead
    assert sorted(str(path.relative_to(ROOT)) for path in adding) == ["shardstream/cli/logs.py", in_workers]
