"""Lists of URLs that hold a user, a password, or a signature: none of them is in a file, a message or a log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import shardstream as ss
from shardstream.cli.app import app
from shardstream.errors import ShardStreamError, UsageError
from shardstream.text import without_credentials

from ..storage.places import WebPlace

SECRETS = ("alice", "geheim0815", "c2lnbmF0dXJl")
Write = Callable[[list[str]], str]


def signed(web: WebPlace, name: str, host: str = "") -> str:
    scheme, _, rest = web.url(f"f/{name}").partition("://")
    rest = rest.replace("127.0.0.1", host) if host else rest
    return f"{scheme}://alice:geheim0815@{rest}?sv=1&sig=c2lnbmF0dXJl"


def tsv(urls: list[str]) -> str:
    return "".join(f"{url}\t{number}\n" for number, url in enumerate(urls))


def csv(urls: list[str]) -> str:
    return "path,label\n" + "".join(f'"{url}",{number}\n' for number, url in enumerate(urls))


def jsonl(urls: list[str]) -> str:
    return "".join(json.dumps({"path": url, "label": number}) + "\n" for number, url in enumerate(urls))


def check(what: str, text: str | bytes) -> None:
    shown = text if isinstance(text, str) else text.decode("latin-1")
    assert not [secret for secret in SECRETS if secret in shown], what


@pytest.mark.parametrize("kind", [tsv, csv, jsonl])
def test_no_file_and_no_output_holds_them(
    web: WebPlace, tmp_path: Path, kind: Callable[[list[str]], str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    for name in ("0.txt", "1.txt", "a b.txt"):
        web.plant(f"f/{name}", name.encode())
    names = ("0.txt", "1.txt", "a b.txt", "gone.txt", "it's gone.txt", "odd.x y", "none")
    urls = [*(signed(web, name) for name in names), signed(web, "0.txt", "localhost")]
    urls += ["s3://alice:geheim0815@bucket/x.txt?sig=c2lnbmF0dXJl", "odd://alice:geheim0815@host/x.txt?c2lnbmF0dXJl"]
    path = tmp_path / "lists" / f"list.{kind.__name__}"
    path.parent.mkdir()
    path.write_text(kind(urls))
    arguments = ["pack", str(path), str(tmp_path / "out"), "--workers", "0", "--rows", "-vv"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    check("output", done.output)
    check("log", caplog.text)
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert {"rejects.jsonl", "rows.parquet"} <= {path.name for path in written}
    for one in written:
        check(one.name, one.read_bytes())
    lost = [json.loads(line) for line in (tmp_path / "out/rejects.jsonl").read_text().splitlines()]
    assert [one["line"] - lost[0]["line"] for one in lost][:4] == [0, 1, 2, 3]
    assert lost[0]["path"].endswith("/f/gone.txt")
    keys = {sample["__key__"].partition("/")[0] for sample in ss.Reader(tmp_path / "out")}
    assert keys == {
        web.endpoint.partition("://")[2],
        web.endpoint.partition("://")[2].replace("127.0.0.1", "localhost"),
    }


@pytest.mark.parametrize("kind", [tsv, csv, jsonl])
def test_no_error_holds_them(web: WebPlace, tmp_path: Path, kind: Callable[[list[str]], str]) -> None:
    path = tmp_path / f"list.{kind.__name__}"
    path.write_text(kind([signed(web, "gone.txt")]))
    verbs: list[Callable[[], Any]] = [
        lambda: ss.pack(path, tmp_path / "out", workers=0),
        lambda: ss.Reader(path)[0],
        lambda: ss.index(path, workers=0),
    ]
    for verb in verbs:
        with pytest.raises(ShardStreamError, match="/f/gone") as caught:
            verb()
        check("error", f"{caught.value} {caught.value.place} {caught.value!r} {caught.value.__cause__!r}")


def test_what_a_list_may_not_name_is_told_without_them(web: WebPlace, tmp_path: Path) -> None:
    web.plant("f/0.txt", b"text")
    web.plant("f/list.tsv", tsv([signed(web, "0.txt"), "http://alice:geheim0815@other/x.txt?c2lnbmF0dXJl"]).encode())
    ss.pack(signed(web, "list.tsv"), tmp_path / "out", workers=0)
    rejects = (tmp_path / "out/rejects.jsonl").read_text()
    assert "'http://other/x.txt' does not lie below http://127.0.0.1" in rejects
    for one in (tmp_path / "out").iterdir():
        check(one.name, one.read_bytes())


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("http://u:p@h:1/a@b?x=1 and more", "http://h:1/a@b and more"),
        ("HTTPS://token@h/", "HTTPS://h/"),
        ("('s3://u:p@b/it's a.jpg?q=1', 2)", "('s3://b/it's a.jpg', 2)"),
        ("sftp://me@h/x, ftp://me:p@ss@h/x?.", "sftp://me@h/x, ftp://h/x?."),
        ("hf://datasets/me/set@main/x", "hf://datasets/me/set@main/x"),
        ("<a href='https://u:p@h/x?y'>?", "<a href='https://h/x'>?"),
        ("a@b: is it x?y", "a@b: is it x?y"),
        ("no://u:p@", "no://"),
    ],
)
def test_texts_lose_users_and_queries_of_urls(text: str, left: str) -> None:
    assert without_credentials(text) == left
    error = UsageError(text, hint=text, url=text, key=text)
    assert (error.what, error.hint, error.place["url"]) == (left, left, left)
    assert str(error).count(left.replace("\n", "")) >= 4
