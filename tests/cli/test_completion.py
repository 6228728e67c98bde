"""Completion in real shells: the script is loaded, and what it proposes is read back."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# How each shell asks, with the words before the cursor in place of {words}. zsh completes only on a terminal: there the
# function of the script is called with what zsh would call it with.
ASK = {
    "bash": """
        eval "$(shardstream --show-completion bash)"
        COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)) COMPREPLY=()
        _shardstream_completion shardstream
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """,
    "zsh": """
        _arguments() {{ print -l -- "$@" }}
        _describe() {{ print -l -- "$@" }}
        compdef() {{ :; }}
        words=({words}) CURRENT=$#words
        eval "$(shardstream --show-completion zsh)"
        _shardstream_completion
    """,
    "fish": """
        shardstream --show-completion fish | source
        complete --do-complete "{words}"
    """,
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The command on the path, and this tree."""
    program = tmp_path / "shardstream"
    program.write_text(f"#!{sys.executable}\nfrom shardstream.cli import main\nmain()\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    paths = [str(Path(__file__).resolve().parents[2]), *sys.path]
    return os.environ | {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(paths),
        "HOME": str(tmp_path),
    }


CASES = [
    ("shardstream errors miss", "missing-key"),
    ("shardstream ver", "verify"),
    ("shardstream pack --dry", "--dry-run"),
    ("shardstream cache wa", "warm"),
]


def cases() -> Iterator[object]:
    """One of them always; each takes two starts of Python."""
    for shell in ASK:
        for number, (words, proposed) in enumerate(CASES):
            first = shell == "bash" and number == 0
            yield pytest.param(shell, words, proposed, marks=[] if first else pytest.mark.full)


@pytest.mark.full
@pytest.mark.parametrize(("shell", "words", "proposed"), [*cases()])
def test_words_are_completed(shell: str, words: str, proposed: str, environment: dict[str, str]) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    script = ASK[shell].format(words=words)
    done = subprocess.run(
        [program, "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert proposed in done.stdout, f"{done.stdout}{done.stderr}"
