"""Texts become tokens: the tokenizer's own, the same by any worker, special ones where they are wanted alone."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss
from shardstream.errors import SourceError, UsageError
from shardstream.pack.bins.texts import Texts, find_text
from shardstream.pack.bins.tokenizers import Tokenizer, tokenizer_of
from shardstream.pack.encode.files import Unreadable

from .test_windows import pieces_of

tokenizers = pytest.importorskip("tokenizers")
tiktoken = pytest.importorskip("tiktoken")

END, BEGIN = "<|end|>", "<|begin|>"
TEXTS = [f"The {i}th page of many: naïve cafés, {'word ' * (i % 40)}and 日本語.\n" for i in range(300)]


def hugging(size: int = 400) -> Any:
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, special_tokens=[END, BEGIN], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(TEXTS, trainer)
    made.enable_truncation(8)
    made.enable_padding(length=16)
    return made


def openai() -> Any:
    ranks = {bytes([i]): i for i in range(256)} | {b"ag": 256, b"page": 257, b"pa": 258, b"ge": 259}
    return tiktoken.Encoding(
        "pages", pat_str=r"\w+|\W", mergeable_ranks=ranks, special_tokens={END: 70_000, BEGIN: 70_001}
    )


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def told(texts: list[str] = TEXTS) -> list[dict[str, Any]]:
    return [{"__key__": f"d{i}", "text": text, "n": i} for i, text in enumerate(texts)]


def tokens_of(url: Path) -> dict[str, list[int]]:
    """The tokens of all documents, by key."""
    return {
        key: np.concatenate([one.ids for one in sorted(pieces, key=lambda one: one.offset)]).tolist()
        for key, pieces in pieces_of(url).items()
    }


def packed(out: Path, documents: Any = None, **options: Any) -> ss.Manifest:
    given = {"bins": 64, "format": "record", "workers": 0, **options}
    return ss.pack(told() if documents is None else documents, out, **given)


@pytest.mark.parametrize("make", [hugging, openai])
def test_tokens_are_those_of_the_tokenizer(make: Any, tmp_path: Path) -> None:
    tokenizer = make()
    manifest = packed(tmp_path, bins=ss.PackedSequences(64, tokenizer=tokenizer))
    alone = hugging()
    alone.no_truncation()
    alone.no_padding()
    expected = [alone.encode(text).ids if make is hugging else tokenizer.encode_ordinary(text) for text in TEXTS]
    assert tokens_of(tmp_path) == {f"d{i}": ids for i, ids in enumerate(expected)}
    assert manifest.bins is not None
    assert manifest.bins.tokens == sum(map(len, expected))
    assert str(manifest.fields["ids"]) == f"array:{'uint16' if make is hugging else 'uint32'}:64"
    assert "text" not in manifest.fields
    if make is hugging:
        assert tokenizer.truncation is not None, "the user's own stays as it was"


def test_a_function_makes_tokens(tmp_path: Path) -> None:
    manifest = packed(
        tmp_path, bins=ss.PackedSequences(64, tokenizer=letters, tokenizer_id="letters-1", token_dtype="uint16")
    )
    assert tokens_of(tmp_path) == {f"d{i}": letters(text) for i, text in enumerate(TEXTS)}
    assert manifest.bins is not None
    assert manifest.bins.tokenizer == "letters-1"


@pytest.mark.parametrize("name", ["tokenizer.json", "folder", "tiktoken:gpt2"])
def test_a_tokenizer_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    for file in ("tokenizer.json", "folder/tokenizer.json"):
        hugging().save(str(tmp_path / file))
    monkeypatch.setattr(tiktoken, "get_encoding", lambda _name: openai())
    given = name if ":" in name else tmp_path / name
    assert (
        packed(tmp_path / "out", bins=ss.PackedSequences(64, tokenizer=given)).bins
        == packed(
            tmp_path / "again", bins=ss.PackedSequences(64, tokenizer=openai() if ":" in name else hugging())
        ).bins
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("make", [hugging, openai])
def test_workers_and_engines_make_the_same_bytes(make: Any, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(one) + "\n" for one in told()))
    options: dict[str, Any] = {"bins": ss.PackedSequences(64, tokenizer=make(), eos=END), "shard_size": "10kB"}
    one = packed(tmp_path / "one", rows, **options)
    assert one.shards > 2
    packed(tmp_path / "two", rows, **options, workers=2)
    plan = ss.pack_plan(rows, tmp_path / "plan", format="record", **options)
    for task in pickle.loads(pickle.dumps(list(plan.tasks))):
        task.run()
    plan.commit()
    assert {path.name for path in (tmp_path / "one").glob("*.rec")} == {
        path.name for path in (tmp_path / "two").glob("*.rec")
    }
    for path in (tmp_path / "one").iterdir():
        if path.name != "report.json":
            assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name
            assert path.read_bytes() == (tmp_path / "plan" / path.name).read_bytes(), path.name


@pytest.mark.parametrize("make", [hugging, openai])
def test_documents_begin_and_end_with_special_tokens(make: Any, tmp_path: Path) -> None:
    known = {END: 0, BEGIN: 1} if make is hugging else {END: 70_000, BEGIN: 70_001}
    long = "page " * 200
    packed(
        tmp_path / "out",
        told([*TEXTS[:20], long]),
        bins=ss.PackedSequences(64, tokenizer=make(), bos=BEGIN, eos=END, pad=END),
    )
    for ids in tokens_of(tmp_path / "out").values():
        assert (ids[0], ids[-1]) == (known[BEGIN], known[END])
        assert not {known[BEGIN], known[END]} & set(ids[1:-1])
    split = pieces_of(tmp_path / "out")["d20"]
    assert len(split) > 1
    assert [known[BEGIN] in one.ids for one in sorted(split, key=lambda one: one.offset)] == [True] + [False] * (
        len(split) - 1
    )


def test_tokens_that_come_ready_get_them_too(tmp_path: Path) -> None:
    mask = {"loss_mask": [1, 0, 1]}
    packed(
        tmp_path,
        [{"__key__": "a", "ids": [5, 6, 7]} | mask],
        bins=ss.PackedSequences(64, bos=1, eos=2, tokenizer_id="x"),
    )
    (piece,) = pieces_of(tmp_path)["a"]
    assert piece.ids.tolist() == [1, 5, 6, 7, 2]
    assert piece.loss.tolist() == [False, True, False, True, True]


@pytest.mark.parametrize("make", [hugging, openai])
@pytest.mark.parametrize("allowed", [False, True])
def test_special_tokens_in_a_text_are_text(make: Any, allowed: bool, tmp_path: Path) -> None:
    packed(
        tmp_path,
        told([f"a page{END} and on"]),
        bins=ss.PackedSequences(64, tokenizer=make(), allow_special=allowed, pad=9),
    )
    special = 0 if make is hugging else 70_000
    assert (special in tokens_of(tmp_path)["d0"]) is allowed


def test_texts_that_cannot_be_tokenized_are_rejects(tmp_path: Path) -> None:
    def fussy(text: str) -> Any:
        if "boom" in text:
            raise RuntimeError("no such word")
        return [[1, 2]] if "square" in text else letters(text)

    documents: list[dict[str, Any]] = [
        {"__key__": "good", "text": "good"},
        {"__key__": "empty", "text": ""},
        {"__key__": "half", "text": "ab\ud800"},
        {"__key__": "boom", "text": "boom"},
        {"__key__": "square", "text": "square"},
        {"__key__": "far", "text": "\U0001f600"},
        {"__key__": "none", "n": 5},
        {"__key__": "ready", "text": "good", "ids": [1]},
    ]
    packed(
        tmp_path, documents, bins=ss.PackedSequences(64, tokenizer=fussy, tokenizer_id="fussy", token_dtype="uint16")
    )
    assert list(tokens_of(tmp_path)) == ["good"]
    rejects = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_text().splitlines()]
    reasons = {one["path"]: one["reason"] for one in rejects}
    assert len(reasons) == len(documents) - 1
    for key, text in {
        "empty": "it has no tokens",
        "half": "field 'text' is not Unicode: a lone surrogate at character 2",
        "boom": "the tokenizer raised RuntimeError: no such word",
        "square": "numbers in one row",
        "far": "128512",
        "none": "it has no field 'text', which holds its text",
        "ready": "it has a field 'ids', which is for tokens that come ready",
    }.items():
        (reason,) = (reasons[path] for path in reasons if key in path)
        assert text in reason, key


def test_half_a_character_in_a_line_of_json_is_a_reject(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    lines = [json.dumps(one) for one in told(TEXTS[:40])]
    lines[7] = '{"__key__": "d7", "text": "ab\\ud800", "n": 7}'
    rows.write_text("\n".join(lines) + "\n")
    packed(tmp_path / "out", rows, bins=ss.PackedSequences(64, tokenizer=hugging()))
    assert len(tokens_of(tmp_path / "out")) == 39
    (reject,) = (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()
    assert json.loads(reject)["line"] == 8
    assert "surrogates not allowed" in reject


def test_files_of_text_are_documents(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    for i, text in enumerate(TEXTS[:30]):
        (tmp_path / "pages" / f"{i}.txt").write_text(text)
    (tmp_path / "pages" / "wrong.txt").write_bytes(b"caf\xe9")
    packed(
        tmp_path / "out",
        tmp_path / "pages",
        bins=ss.PackedSequences(64, tokenizer=letters, tokenizer_id="letters", text_field="txt"),
    )
    assert {tuple(ids) for ids in tokens_of(tmp_path / "out").values()} == {tuple(letters(text)) for text in TEXTS[:30]}
    (reject,) = (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()
    assert "wrong.txt" in reject


@pytest.mark.parametrize("ready", [False, True])
def test_copies_are_those_of_the_text_alone(ready: bool, tmp_path: Path) -> None:
    documents = [{"__key__": f"d{i}", "text": TEXTS[i % 7], "n": i} for i in range(30)]
    if ready:
        documents = [{**one, "ids": letters(str(one.pop("text")))} for one in documents]
    given = {} if ready else {"bins": ss.PackedSequences(64, tokenizer=letters, tokenizer_id="letters")}
    manifest = packed(tmp_path, documents, dedup=True, **given)
    assert manifest.bins is not None
    assert manifest.bins.documents == 7
    assert set(tokens_of(tmp_path)) == {f"d{i}" for i in range(7)}


def test_copies_of_what_a_transform_makes_texts_of_are_those_of_all(tmp_path: Path) -> None:
    documents = [{"__key__": f"d{i}", "page": TEXTS[i % 7]} for i in range(30)]
    manifest = packed(
        tmp_path,
        documents,
        dedup=True,
        bins=ss.PackedSequences(64, tokenizer=letters, tokenizer_id="letters"),
        transform=as_text,
    )
    assert manifest.bins is not None
    assert manifest.bins.documents == 7


def as_text(sample: dict[str, Any]) -> dict[str, Any]:
    return {"text": sample["page"]}


def test_another_tokenizer_is_another_data_set(tmp_path: Path) -> None:
    packed(tmp_path, bins=ss.PackedSequences(64, tokenizer=hugging()))
    with pytest.raises(UsageError, match=r"tokenized by tokenizers \w+, .* by tokenizers \w+"):
        packed(tmp_path, told(TEXTS[:50]), bins=ss.PackedSequences(64, tokenizer=hugging(390)), append=True)
    with pytest.raises(UsageError, match=r"by what is not known"):
        packed(tmp_path, [{"__key__": "x", "ids": [1]}], append=True, bins=ss.PackedSequences(64, token_dtype="uint16"))
    grown = packed(
        tmp_path,
        [{"__key__": f"e{i}", "text": text} for i, text in enumerate(TEXTS)],
        bins=ss.PackedSequences(64, tokenizer=hugging()),
        append=True,
    )
    assert grown.bins is not None
    assert grown.bins.documents == 2 * len(TEXTS)
    assert grown.bins.tokenizer == ss.Manifest.load(tmp_path).bins.tokenizer  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "reason"), [(5, "is int, not text"), ("café".encode("latin-1"), "is not valid UTF-8, at byte 3")]
)
def test_no_document_with_a_text_says_why(text: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=f"field 'text' {reason}"):
        packed(
            tmp_path,
            [{"__key__": "a", "text": text}],
            bins=ss.PackedSequences(64, tokenizer=letters, tokenizer_id="x"),
            fields={"text": "bytes"} if isinstance(text, bytes) else None,
        )


SHAREGPT = [
    {"from": "system", "value": "Be kind."},
    {"from": "human", "value": "Hi."},
    {"from": "gpt", "value": "Hello.", "weight": 1},
    {"from": "tool", "value": "7"},
]
OPENAI = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hi."},
    {"role": "assistant", "content": "Hello.", "weight": 1},
    {"role": "tool", "content": "7"},
]


@pytest.mark.parametrize("said", [SHAREGPT, OPENAI])
def test_messages_reach_the_chat_template_as_role_and_content(said: list[dict[str, Any]]) -> None:
    texts = Texts(Tokenizer("chat", "x", b""), "said", conversations=True)
    assert next(texts.tokens({"said": said})) == OPENAI


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        (
            [SHAREGPT[0], {"from": "narrator", "value": "Once"}],
            "message 1 is from 'narrator', which is none of human, ",
        ),
        ([{"from": None, "value": "Once"}], "message 0 is from None"),
        ([{"speaker": "a", "text": "b"}], "message 0 has 'speaker', 'text', not role and content, or from and value"),
        ([{}], "message 0 has nothing, not role and content"),
        ("Hello", "field 'said' is not a list of messages"),
    ],
)
def test_messages_of_other_kinds_say_which_and_what_to_do(messages: Any, reason: str) -> None:
    texts = Texts(Tokenizer("chat", "x", b""), "said", conversations=True)
    with pytest.raises(Unreadable, match=reason):
        next(texts.tokens({"said": messages}))


def test_a_field_of_messages_that_no_sample_has_names_the_likely_one() -> None:
    with pytest.raises(UsageError, match=r"(?s)'messages'.*did you mean 'conversations'\? name it: --messages"):
        find_text("messages", ["id", "conversations"], conversations=True, url="")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenizer": letters}, "only its name tells from others"),
        ({"tokenizer": 7}, "the tokenizer cannot be 7"),
        ({"tokenizer": "nowhere.json"}, "there is no tokenizer 'nowhere.json'"),
        ({"tokenizer": "tiktoken:nowhere"}, "tiktoken has no encoding 'nowhere'"),
        ({"tokenizer": __file__}, "cannot be read as a tokenizer: "),
        ({"tokenizer": hugging, "tokenizer_id": "x", "eos": END}, "the tokenizer has no such token"),
        ({"eos": END}, "no tokenizer is given that knows it"),
        ({"eos": -1}, r"eos must be a token in \[0, 4294967295\], got -1"),
        ({"pad": None}, "pad must be a token"),
        ({"text_field": "body"}, "text_field is an option of texts that are tokenized"),
        ({"tokenizer": letters, "tokenizer_id": "x", "messages": "m"}, "which only tokenizers of transformers have"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ss.PackedSequences(64, **options)


def test_tokenizing_is_for_bins() -> None:
    with pytest.raises(UsageError, match=r"tokenizer \(--tokenize\) is an option of bins"):
        ss.PackedSequences(tokenizer=letters, tokenizer_id="x")  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="tokenizer_id='x' beside a tokenizer"):
        ss.PackedSequences(8, tokenizer=hugging(), tokenizer_id="x")


def test_parts_written_in_python_have_no_content() -> None:
    custom = hugging()
    custom.pre_tokenizer = tokenizers.pre_tokenizers.PreTokenizer.custom(object())
    with pytest.raises(UsageError, match="cannot be written down"):
        ss.PackedSequences(64, tokenizer=custom)


def test_a_tokenizer_travels_as_what_it_holds() -> None:
    for make in (hugging, openai):
        made = tokenizer_of(make(), name=None, allow_special=False, conversations=False)
        again: Tokenizer = pickle.loads(pickle.dumps(made))
        assert again == made
        assert list(again.encode(TEXTS[0])) == list(made.encode(TEXTS[0]))
        assert made.token(END) is not None
        assert made.token("no such token at all") is None
        assert len(repr(made)) < 200


@pytest.mark.full
def test_one_thread_a_worker_finds_the_same_tokens() -> None:
    """Workers take another call of the library than processes that may fork later."""
    program = (
        "from tests.pack.bins.test_tokenizing import *;"
        "made = tokenizer_of(hugging(), name=None, allow_special=False, conversations=False);"
        "print(json.dumps([list(made.encode(text)) for text in TEXTS]))"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"TOKENIZERS_PARALLELISM": parallel},
            check=True,
            capture_output=True,
        ).stdout
        for parallel in ("false", "true")
    ]
    assert json.loads(found[0]) == json.loads(found[1])


@pytest.mark.full
def test_on_the_command_line(tmp_path: Path) -> None:
    rows, tokenizer = tmp_path / "rows.jsonl", tmp_path / "tokenizer.json"
    rows.write_text("".join(json.dumps(one) + "\n" for one in told()))
    hugging().save(str(tokenizer))
    command = [sys.executable, "-m", "shardstream", "pack", str(rows), str(tmp_path / "out"), "--bins", "64"]
    command += ["--tokenize", str(tokenizer), "--eos", END, "--pad", "1", "--quiet"]
    said = subprocess.run(command, check=True, capture_output=True, cwd=tmp_path, text=True).stdout
    assert re.search(r"out: [\d,]+ bins in 1 shard, .* documents/s", said), said
    assert "documents: most are of" in said
    bins = ss.Manifest.load(tmp_path / "out").bins
    assert bins is not None
    assert (bins.documents, bins.pad) == (len(TEXTS), 1)
    assert all(ids[-1] == 0 for ids in tokens_of(tmp_path / "out").values())
