"""Fields of documents: the one of the text is found by its name, and gaps in numbers are an error before any work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardstream as ss
from shardstream.errors import FieldError, UsageError
from shardstream.pack.bins.texts import TEXT_FIELDS

from .test_tokenizing import letters, packed, tokens_of


def documents_of(*names: str) -> list[dict[str, Any]]:
    return [{"__key__": f"d{i}", **dict.fromkeys(names, f"page {i}"), "n": i} for i in range(3)]


@pytest.mark.parametrize("name", TEXT_FIELDS)
def test_the_field_of_texts_is_found(name: str, tmp_path: Path) -> None:
    lines = (json.dumps(one) + "\n" for one in documents_of(name, "title"))
    (tmp_path / "pages.jsonl").write_text("".join(lines))
    bins = ss.PackedSequences(64, tokenizer=letters, tokenizer_id="x")
    plan = ss.pack_plan(tmp_path / "pages.jsonl", tmp_path / "out", bins=bins)
    assert (f"The text of a document is its field {name!r}." in plan.notes) == (name != "text")
    packed(tmp_path / "out", tmp_path / "pages.jsonl", bins=bins)
    assert sorted(tokens_of(tmp_path / "out").values()) == [letters(f"page {i}") for i in range(3)]
    assert not ss.Manifest.load(tmp_path / "out").fields.keys() & set(TEXT_FIELDS)


@pytest.mark.parametrize(
    ("names", "given", "message"),
    [
        (("content", "body"), None, r"several fields may hold the text: content, body .*--text-field"),
        (("page",), None, r"no field is called text, content, body, or raw_content .*--text-field .* are n, page"),
        (("text",), "body", r"no sample has a field 'body'.*did you mean 'text'\? name it: --text-field"),
        (("content",), "conten", r"no sample has a field 'conten'.*did you mean 'content'\?"),
    ],
)
def test_texts_of_no_field_or_of_several_are_an_error(
    names: tuple[str, ...], given: str | None, message: str, tmp_path: Path
) -> None:
    bins = ss.PackedSequences(64, tokenizer=letters, tokenizer_id="x", text_field=given)
    with pytest.raises(UsageError, match=f"(?s){message}"):
        packed(tmp_path, documents_of(*names), bins=bins)


def test_text_goes_before_other_fields_of_texts(tmp_path: Path) -> None:
    packed(tmp_path, documents_of(*TEXT_FIELDS), bins=ss.PackedSequences(64, tokenizer=letters, tokenizer_id="x"))
    assert (tmp_path / "dataset.json").exists()
    assert set(ss.Manifest.load(tmp_path).fields) >= {"content", "body", "raw_content"}


def test_a_missing_field_of_tokens_names_the_option_to_give(tmp_path: Path) -> None:
    documents = [{"__key__": "a", "content": "café"}]
    with pytest.raises(UsageError, match=r"(?s)no sample has a field 'ids'.*--bin-field FIELD") as caught:
        packed(tmp_path, documents, bins=ss.PackedSequences(64))
    assert "'content'" in caught.value.hint
    assert "relative" not in caught.value.hint


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "list"])
def test_integers_that_some_documents_lack_are_told_before_a_text_is_tokenized(kind: str, tmp_path: Path) -> None:
    """The last of them lacks one; a document without a text is a reject, and lacks nothing."""
    calls: list[str] = []

    def counting(text: str) -> list[int]:
        calls.append(text)
        return letters(text)

    count = 1500 if kind != "list" else 900  # beyond what is sampled, where the source knows
    rows: list[dict[str, Any]] = [{"content": f"text {i}", "stars": i, "n": i} for i in range(count)]
    rows[3] |= {"content": None, "n": None}
    rows[-1]["stars"] = None
    source: Any = rows
    if kind == "parquet":
        source = tmp_path / "rows.parquet"
        pq.write_table(pa.Table.from_pylist(rows), source)
    elif kind == "jsonl":
        (tmp_path / "rows").mkdir()
        source = tmp_path / "rows"
        (source / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    bins = ss.PackedSequences(64, tokenizer=counting, tokenizer_id="x", token_dtype="uint16", text_field="content")
    with pytest.raises(FieldError, match="the document has no 'stars'") as caught:
        ss.pack(source, tmp_path / "out", bins=bins, workers=0)
    assert calls == []
    if kind != "list":
        fields = eval(caught.value.hint.partition("(fields=")[2].partition(")")[0])
        ss.pack(source, tmp_path / "out", bins=bins, workers=0, fields=fields)
        assert set(calls) == {f"text {i}" for i in range(count)} - {"text 3"}
