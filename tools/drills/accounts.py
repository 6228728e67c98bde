"""Another account of the machine that means harm; see ``tools/drills/accounts``."""

from __future__ import annotations

import argparse
import http.client
import importlib.util
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from drills.named import problems_of
from drills.processes.acts import DAMAGE, PLANTS
from drills.processes.machine import ROOT, THEY, YOU, Machine
from shardstream.report.serving import PageServer
from shardstream.testing import make_dataset

ATTACKS = ("statistics", "links", "cache", "top", "page", "tokenizers")
SECRET = b"SECRET-OF-ANOTHER-ACCOUNT" * 8
SAMPLES = 64
_TEMPLATE = "{% for m in messages %}{% generation %}{{ m['content'] }}{% endgeneration %}{% endfor %}"
_OS = "cycler.__init__.__globals__.os.popen('touch {pwned}').read()"
_TEMPLATES = {
    "that is good": _TEMPLATE,
    "that reaches for Python": f"{{% generation %}}{{{{ {_OS} }}}}{{% endgeneration %}}",
    "without end": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}" + _TEMPLATE,
    "of 3 GB": "{% generation %}{{ 'x' * 3000000000 }}{% endgeneration %}",
}
_EVIL = (
    "open({pwned!r}, 'w')\nfrom transformers import PreTrainedTokenizerFast\n"
    "class Evil(PreTrainedTokenizerFast): pass\nclass Config: pass\n"
)

Problems = Iterator[str]


class Accounts:
    """What one account does to another; each public method but the first is an attack, and gives problems.

    Args:
        folder: Empty.
        rounds: How often what is drawn at random is tried.
        seed: Of what is drawn.
    """

    def __init__(self, folder: Path, rounds: int, seed: int) -> None:
        self.machine = Machine(folder)
        self.folder, self.rounds, self.seed = folder, rounds, seed
        self.precious = self.machine.home / "precious"
        self.precious.write_bytes(SECRET)
        self.precious.chmod(0o600)
        os.chown(self.precious, YOU, YOU)
        make_dataset(folder / "data", fields={"n": "int64", "txt": "str"}, samples=SAMPLES, shards=4)

    def _is_untouched(self, name: str) -> Problems:
        if self.precious.read_bytes() != SECRET:
            yield f"{name}: a file of yours is {self.precious.read_bytes()[:40]!r}"
            self.precious.write_bytes(SECRET)

    def statistics(self) -> Problems:
        """They plant something where you write statistics and traces."""
        for number, kind in enumerate(PLANTS):
            place = self.machine.make(f"run-{number}", owner=THEY, mode=0o777)
            for name in ("stats.json", "trace.json"):
                self.machine.act(THEY, "plant", place / name, kind, self.precious)
            self.machine.act(THEY, "guess", place / "stats.json", kind, self.precious)
            done = self.machine.act(YOU, "train", self.folder / "data", place / "stats.json", place / "trace.json")
            yield from done.problem(f"training beside a {kind}")
            yield from self._is_untouched(f"training beside a {kind}")
            if done.status == 0 and not (place / "stats.json").is_file():
                yield f"training beside a {kind}: no statistics"

    def links(self) -> Problems:
        """They plant links to your files among the data that you pack."""
        photos = self.machine.make("photos", owner=THEY, mode=0o777)
        for name in ("a", "b"):
            (photos / name).mkdir(mode=0o777)
            (photos / name).chmod(0o777)
            Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(photos / name / "0.jpg")
        for name in ("a/1.jpg", "b/1.txt", "a/2.json"):
            self.machine.act(THEY, "plant", photos / name, "link", self.precious)
        yield from self.machine.act(YOU, "pack", photos, self.machine.home / "packed").problem("pack")
        self.machine.act(THEY, "plant", photos / "c", "link", self.machine.home)
        done = self.machine.act(YOU, "pack", photos, self.machine.home / "packed-too")
        yield from done.problem("pack of a linked class")
        for path in self.machine.home.glob("packed*/**/*"):
            if path.is_file() and SECRET[:25] in path.read_bytes():
                yield f"{path.name} has what is in a file of yours"

    def cache(self) -> Problems:
        """They damage the cache that both share."""
        with _served(self.folder / "data") as url:
            for number in range(max(len(DAMAGE), self.rounds // 2)):
                kind = DAMAGE[number % len(DAMAGE)]
                place, name = self.machine.make(f"cache-{number}", owner=YOU, mode=0o2770), f"a cache with {kind}"
                arguments = url, place, str(SAMPLES)
                yield from self.machine.act(YOU, "read", *arguments).problem("a new cache", fails=False)
                self.machine.act(THEY, "damage", place, kind, self.precious, f"{self.seed} {number}")
                yield from self.machine.act(YOU, "read", *arguments).problem(name, fails=False)
                yield from self._is_untouched(name)

    def top(self) -> Problems:
        """Root looks at a process of theirs, whose shared memory is forged."""
        for number in range(self.rounds):
            act = "-m", "drills.processes.acts", "forge"
            with self.machine.start(THEY, *act, self.folder / "data", f"{self.seed} {number}") as forger:
                try:
                    said = forger.stdout.readline() if forger.stdout else ""
                    if said != "ready\n":
                        yield f"forgery {number} did not begin: {said}{forger.communicate()[0][-800:]}"
                        continue
                    done = self.machine.command(0, "top", str(forger.pid), "--once")
                    yield from done.problem(f"top at forgery {number}")
                    if "\x1b]" in done.said or "site-packages" in done.said:
                        yield f"top at forgery {number}: {done.said[-500:]!r}"
                finally:
                    forger.kill()

    def page(self) -> Problems:
        """They ask for the page that you look at, and hold its server's connections."""
        page = f"<p>{SECRET.decode()}</p>"
        draws = random.Random(self.seed)
        with PageServer(page) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            port, host = server.server_port, f"127.0.0.1:{server.server_port}"
            for number in range(self.rounds * 20):
                path = draws.choice(("/", server.path[:-2] + "/", f"{server.path}../", "/x" * 99, "//", server.path))
                name = "evil.example" if path == server.path else draws.choice((host, "evil.example", ""))
                method = draws.choice(("GET", "HEAD", "POST", "OPTIONS", "<script>"))
                lines = f"{method} {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode()
                if number % 3 == 2:
                    lines = _damaged(lines, draws)
                answer = _answer(port, lines)
                if SECRET in answer and not (server.path.encode() in lines and host.encode() in lines):
                    yield f"{lines!r} got the page"
                if b"<script>" in answer.partition(b"\r\n\r\n")[2]:
                    yield f"{lines!r} came back as markup"
            idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            client.request("GET", server.path)
            if SECRET not in client.getresponse().read():
                yield "the page cannot be had beside 300 idle connections"
            for one in idle:
                one.close()
            server.shutdown()

    def tokenizers(self) -> Problems:
        """They give you tokenizers that bring code of their own, endless templates, and damage."""
        if importlib.util.find_spec("transformers") is None:
            print("tokenizers: left out, transformers is not installed")
            return
        place, pwned = self.machine.make("tokenizers", owner=THEY, mode=0o777), self.folder / "pwned"
        self.folder.chmod(0o777)
        messages = [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "b a"}]
        (place / "talks.jsonl").write_text(f"{json.dumps({'messages': messages})}\n" * 5)
        for name, files in _tokenizers(self.rounds // 2, str(pwned), self.seed):
            folder, out = place / name.replace(" ", "-"), self.machine.home / f"bins-{name.replace(' ', '-')}"
            folder.mkdir()
            for file, content in files.items():
                (folder / file).write_bytes(content)
            flags = ("--bins", "64", "--messages", "messages", "--tokenize", folder, "--template-seconds", "2", "-q")
            done = self.machine.command(YOU, "pack", place / "talks.jsonl", out, *flags, answer="y\n" * 20)
            yield from done.problem(f"a tokenizer {name}", fails=name != "that is good")
            if pwned.exists():
                yield f"a tokenizer {name} ran code"
                pwned.unlink()
        self.folder.chmod(0o755)


def _tokenizers(damaged: int, pwned: str, seed: int) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Directories by what they are, as files: by templates, with code of their own, and with random damage."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[UNK]": 0, "a": 1, "b": 2, "<s>": 3, "</s>": 4}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))  # noqa: S106 - a word
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    files = {"tokenizer.json": made.to_str().encode()}

    def configured(**config: object) -> dict[str, bytes]:
        return files | {"tokenizer_config.json": json.dumps(config).encode()}

    for name, template in _TEMPLATES.items():
        text = template.replace("{pwned}", pwned)
        yield f"with a template {name}", configured(tokenizer_class="PreTrainedTokenizerFast", chat_template=text)
    code = {"evil.py": _EVIL.format(pwned=pwned).encode()}
    names = {"AutoTokenizer": [None, "evil.Evil"], "AutoConfig": "evil.Config"}
    yield "with code", code | configured(tokenizer_class="Evil", auto_map=names, chat_template=_TEMPLATE)
    model = {"config.json": json.dumps({"model_type": "evil", "auto_map": names}).encode()}
    yield "with code of its model", code | model | configured(chat_template=_TEMPLATE)
    good = configured(tokenizer_class="PreTrainedTokenizerFast", chat_template=_TEMPLATE)
    draws = random.Random(seed)
    for number in range(damaged):
        file = draws.choice(sorted(good))
        yield f"damaged {number}", good | {file: _damaged(good[file], draws)}


def _damaged(data: bytes, draws: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draws.randrange(1, 4)):
        begin = draws.randrange(len(changed))
        piece = draws.choice((b"", b"\0", b"[" * 999, b"9" * 40, draws.randbytes(4)))
        changed[begin : begin + draws.randrange(9)] = piece
    return bytes(changed)


def _answer(port: int, lines: bytes) -> bytes:
    """What a server says to these lines; nothing where it closes."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        try:
            connection.sendall(lines)
            connection.shutdown(socket.SHUT_WR)
            while some := connection.recv(1 << 16):
                found += some
        except (ConnectionError, TimeoutError):
            pass
    return found


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The URL of a folder on a web server of this process's."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = [sys.executable, str(ROOT / "tests/storage/webserver.py"), str(folder), str(port)]
    with subprocess.Popen(program) as server:
        try:
            for _ in range(200):
                if server.poll() is None and _listens(port):
                    break
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.1).close()
    except OSError:
        threading.Event().wait(0.1)
        return False
    return True


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default=",".join(ATTACKS))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    drill = Accounts(given.folder.resolve(), given.rounds, given.seed)
    try:
        count = problems_of(drill, [name for name in ATTACKS if name in given.only.split(",")])
    finally:
        drill.machine.close()
    if not count:
        shutil.rmtree(given.folder)
    return bool(count)


if __name__ == "__main__":
    raise SystemExit(main())
