"""Every code block of the README and of docs/ runs, in order, in a folder of its own.

The folder holds ``photos/`` (class folders of JPEG files), ``list.tsv`` (``path<TAB>label``) and, when the document
mentions it, ``shards/``, a packed data set of them. Blocks of one document share their names. What runs: blocks marked
``python``, and blocks marked ``bash`` or ``console`` whose lines are commands of `shardstream`. Any other block of
these kinds must carry a reason right above its fence: ``<!-- not run: it needs a GPU -->``.

``s3://bucket/`` and ``az://container/`` are places on servers of the tests, which the environment leads to; ``/nvme``
and ``/dev/shm`` are folders.

Documents run under fork and, but for long ones, under forkserver with ``--full``: it is the default from Python 3.14
on. There their functions and classes stand at the top of a module, as in a program of a user, and what is looked at
here has to travel all the same.
"""

from __future__ import annotations

import ast
import multiprocessing
import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import forkserver
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ..storage.places import Place

ROOT = Path(__file__).resolve().parents[2]
# They start stores, ranks, many interpreters.
LONG = (
    *("storage", "clusters", "s3", "azure", "backends", "packing", "view", "bench", "migrate", "foreign", "doctor"),
    *("tour", "tasks", "recipes"),
)
DOCUMENTS = sorted([*ROOT.glob("README.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>\w*)[^\n]*\n(?P<body>.*?)^(?P=indent)```\s*$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: \S[^\n]*-->\s*\Z")
SHELL = ("bash", "sh", "shell", "console")
GUARD = 'if __name__ == "__main__":'


@dataclass(frozen=True)
class Block:
    """One fenced block that is code."""

    kind: str
    body: str
    line: int
    excused: bool


def blocks(text: str) -> list[Block]:
    found = []
    for match in FENCE.finditer(text):
        if match["kind"] in ("python", *SHELL):
            indent = re.compile(f"^{match['indent']}", re.MULTILINE)
            line = text.count("\n", 0, match.start("body"))
            excused = bool(NOT_RUN.search(text[: match.start()]))
            found.append(Block(match["kind"], indent.sub("", match["body"]), line, excused))
    return found


def commands(body: str) -> list[list[str]]:
    """The commands of a shell block, without prompts, comments and (in a console) output."""
    lines = body.replace("\\\n", " ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what each document finds in its own."""
    image = pytest.importorskip("PIL.Image")
    made = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    lines = []
    for label, name in enumerate(("cat", "dog")):
        folder = made / "photos" / name
        folder.mkdir(parents=True)
        for i in range(128):
            pixels = rng.integers(0, 255, (int(rng.integers(6, 12)), 8, 3), dtype=np.uint8)
            image.fromarray(pixels).resize((256, 32 * len(pixels))).save(folder / f"{i}.jpg")
            lines.append(f"photos/{name}/{i}.jpg\t{label}\n")
    (made / "list.tsv").write_text("".join(lines))
    return made


@pytest.fixture(scope="module")
def packed(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The photographs as a data set."""
    import shardstream

    folder = tmp_path_factory.mktemp("packed")
    shardstream.pack(photos / "photos", folder)
    return folder


@pytest.fixture
def workplace(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(photos / "photos", tmp_path / "photos", copy_function=os.link)
    shutil.copy(photos / "list.tsv", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def settled(request: pytest.FixtureRequest, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Puts the places of a text where this test may write."""

    def settle(text: str) -> str:
        for written, server in (("s3://bucket", "s3"), ("az://container", "azure")):
            if any(written in block.body and not block.excused for block in blocks(text)):
                place: Place = request.getfixturevalue(server)
                for name, value in place.environment.items():
                    monkeypatch.setenv(name, value)
                text = text.replace(written, place.url())
        return re.sub(r"(?<![\w.-])/(nvme|dev/shm)\b", rf"{workplace}/\1", text)

    return settle


def runs() -> Iterator[object]:
    """Every document with code under fork and, where it is Python that takes no long time, under forkserver."""
    for path in DOCUMENTS:
        kinds = {block.kind for block in blocks(path.read_text()) if not block.excused}
        methods = ("fork", "forkserver") if "python" in kinds and path.stem not in LONG else ("fork",)
        for method in methods if kinds else ():
            long = path.stem in LONG or method == "forkserver"
            name = str(path.relative_to(ROOT)) + ("-forkserver" if method == "forkserver" else "")
            yield pytest.param(path, method, id=name, marks=[pytest.mark.full] if long else [])


def definitions(text: str) -> str:
    """What a program would have at its top: imports, functions and classes of all blocks that run."""
    found = [
        node
        for block in blocks(text)
        if block.kind == "python" and not block.excused
        for node in ast.parse(block.body).body
        if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)
    ]
    return "\n".join(map(ast.unparse, found))


@pytest.fixture
def module(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module that blocks run in. Other processes find ``document.py`` in its place."""
    made = ModuleType("document")
    monkeypatch.setitem(sys.modules, "document", made)
    monkeypatch.syspath_prepend(workplace)
    yield made
    multiprocessing.set_start_method(None, force=True)


def new_forkserver() -> None:
    """The next process comes from another server: one that an earlier test began has that test's environment.

    The old server ends by itself, once nobody holds its pipe. It is not waited for: a process that was forked since
    then holds it too, the worker of a loader that still stands, say.
    """
    server = forkserver._forkserver
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
    vars(server).update(vars(forkserver.ForkServer()))


@pytest.mark.parametrize(("document", "method"), [*runs()])
def test_code_blocks_run(
    document: Path,
    method: str,
    workplace: Path,
    module: ModuleType,
    settled: Callable[[str], str],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import shardstream

    text = settled(document.read_text())
    multiprocessing.set_start_method(method, force=True)
    if method == "forkserver":
        new_forkserver()
        multiprocessing.set_forkserver_preload(["torch"])  # which each process would import again
        (workplace / "document.py").write_text(definitions(text))
        look = shardstream.ShardDataset.first_batch
        monkeypatch.setattr(shardstream.ShardDataset, "first_batch", lambda ds: look(pickle.loads(pickle.dumps(ds))))
    if "shards/" in text and blocks(text):
        shutil.copytree(request.getfixturevalue("packed"), "shards")
    names = vars(module)
    for block in blocks(text):
        if block.excused:
            continue
        if block.kind == "python":
            # Blank lines in front, so that a traceback shows the document's own line.
            body = block.body.replace(GUARD, "if True:")  # the module is a document's, and no program
            exec(compile("\n" * block.line + body, document, "exec"), names)
            continue
        for words in commands(block.body):
            place = f"{document.name}:{block.line + 1}"
            assert words[0] == "shardstream", f"{place}: {words[0]} is not run here; say why above: <!-- not run: … -->"
            program = [sys.executable, "-m", "shardstream", *words[1:]]
            done = subprocess.run(program, cwd=workplace, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, f"{place}: {shlex.join(words)}\n{done.stdout}{done.stderr}"


def starts_workers(program: str) -> Iterator[int]:
    """The lines that start workers in no function or class and below no guard; to make a loader starts none."""
    loaders: set[str] = set()
    for statement in ast.parse(program).body:
        if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
            continue
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        value = statement.value if isinstance(statement, ast.Assign) else None
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and node.id in loaders:
                yield node.lineno
            if isinstance(node, ast.Call) and re.search(r"\b(Loader|find_rows)$", ast.unparse(node.func)):
                workers = [ast.unparse(one.value) for one in node.keywords if (one.arg or "").endswith("workers")]
                if workers == ["0"]:
                    continue
                if node is value and ast.unparse(node.func).endswith("Loader"):
                    loaders.update(map(ast.unparse, statement.targets))
                else:
                    yield node.lineno


def programs() -> Iterator[tuple[str, str]]:
    """What a reader can save and run: blocks that import the package, and examples."""
    for path in DOCUMENTS:
        text = path.read_text()
        for match in FENCE.finditer(text):
            if match["kind"] in ("python", "py") and "import shardstream" in match["body"]:
                yield f"{path.relative_to(ROOT)} from line {text[: match.start('body')].count(chr(10))}", match["body"]
    for path in sorted((ROOT / "examples").glob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text()


def test_programs_start_workers_below_the_guard() -> None:
    found = [f"{name}, line {line}" for name, program in programs() for line in starts_workers(program)]
    assert not found, f"a worker under spawn or forkserver imports the program: put {GUARD} above"


def test_what_starts_workers_is_found() -> None:
    top = "import shardstream as ss\nds = ss.ShardDataset('a')\n"
    assert list(starts_workers(f"{top}for batch in ss.Loader(ds, num_workers=2): pass")) == [3]
    assert list(starts_workers(f"{top}loader = ss.Loader(ds)\nfor batch in loader: pass")) == [4]
    assert list(starts_workers(f"{top}rows = ss.find_rows('a', keep)")) == [3]
    assert list(starts_workers(f"{top}loader = ss.Loader(ds)\n{GUARD}\n    next(iter(loader))")) == []
    assert (
        list(starts_workers(f"{top}next(iter(ss.Loader(ds, num_workers=0)))\ndef f():\n    list(ss.Loader(ds))")) == []
    )


def test_a_new_forkserver_is_not_waited_for_and_has_the_environment_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    by_server, by_fork = multiprocessing.get_context("forkserver"), multiprocessing.get_context("fork")
    with by_server.Pool(1):
        pass
    holder = by_fork.Process(target=time.sleep, args=(60,))
    holder.start()
    monkeypatch.setenv("SHARDSTREAM_OF_NOW", "yes")
    new_forkserver()
    with by_server.Pool(1) as pool:
        assert pool.apply(os.getenv, ("SHARDSTREAM_OF_NOW",)) == "yes"
    holder.kill()
    holder.join()


def test_blocks_are_found_with_line_kind_and_excuse() -> None:
    text = "one\n```python\nx = 1\n```\n\n<!-- not run: needs a GPU -->\n```bash\ntools/demo\n```\n```json\n{}\n```\n"
    assert blocks(text) == [
        Block("python", "x = 1\n", 2, excused=False),
        Block("bash", "tools/demo\n", 7, excused=True),
    ]


def test_definitions_are_what_stands_at_the_top_of_a_program() -> None:
    text = "```python\nimport os\nx = 1\ndef f(a):\n    return a\n```\n<!-- not run: no -->\n```python\n1\n```\n"
    assert definitions(text) == "import os\ndef f(a):\n    return a"


def test_an_excuse_needs_a_reason_and_stands_right_above() -> None:
    for above in ("<!-- not run: -->\n", "<!-- not run: because -->\ntext\n"):
        (block,) = blocks(f"{above}```python\n1 / 0\n```\n")
        assert not block.excused


def test_commands_drop_prompts_comments_and_output() -> None:
    assert commands("shardstream pack a b \\\n  --seed 1  # why\n\n") == [
        ["shardstream", "pack", "a", "b", "--seed", "1"]
    ]
    assert commands("$ shardstream info out/\nsamples 3\n") == [["shardstream", "info", "out/"]]
