"""Tokenizers of other libraries, known by what they hold, so that a process anywhere builds the same one.

- ``tokenizers``: by its JSON, which has the added tokens too; truncation and padding are turned off.
- ``transformers``: by the ``tokenizers`` one inside it; for conversations also by chat template and special tokens.
- ``tiktoken``: by ranks, pattern and special tokens.
- A function, by the name that its user gives it.
"""

from __future__ import annotations

import base64
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import xxhash

from shardstream.errors import UsageError
from shardstream.extras import private, require

Encode: TypeAlias = Callable[[str], Any]
"""From a text to its tokens: what numpy makes an array of."""
Kind: TypeAlias = Literal["tokenizers", "tiktoken", "chat", "function"]

_ONE_THREAD = ("false", "off", "0", "no", "n", "f", "")  # of TOKENIZERS_PARALLELISM
_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
_HINT = (
    "give a tokenizer of tokenizers, transformers or tiktoken, the path of a tokenizer.json, 'tiktoken:NAME', or a "
    "function of a text with PackedSequences(tokenizer_id=...)"
)


class Tokens(NamedTuple):
    """What a text or a conversation became.

    Attributes:
        ids: The tokens.
        learned: Which of them are learned from; ``None`` for all.
    """

    ids: Any
    learned: Any = None


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A tokenizer, in a form that goes to other processes and machines.

    Attributes:
        kind: What it is built with.
        identity: What tells it from others: equal ones make equal tokens.
        content: What it is built from, compressed JSON; empty for a function.
        function: The function, where it is one.
        allow_special: Whether special tokens that stand in a text become these.
        vocabulary: One more than its largest token; ``None`` where nobody knows.
    """

    kind: Kind
    identity: str
    content: bytes = field(repr=False, compare=False)  # each task brings its own, and `identity` tells them apart
    function: Encode | None = None
    allow_special: bool = False
    vocabulary: int | None = None

    @property
    def encode(self) -> Encode:
        """From a text to its tokens, built once in each process."""
        if self.function is not None:
            return self.function
        return _encode(self)

    @property
    def converse(self) -> Callable[[list[Any]], Tokens]:
        """From a conversation to its tokens; ValueError for one that has something wrong."""
        return _converse(self)

    def fits(self, dtype: str) -> bool:
        """Whether each of its tokens is known to fit."""
        return self.vocabulary is not None and self.vocabulary <= np.iinfo(dtype).max + 1

    def token(self, name: str) -> int | None:
        """The number of a token, by its text."""
        return None if self.function is not None else _token(self)(name)

    def held(self) -> Any:
        """What it is built from."""
        return json.loads(zlib.decompress(self.content))


def tokenizer_of(given: Any, *, name: str | None, allow_special: bool, conversations: bool) -> Tokenizer:
    """Make a tokenizer of what a user gave as one.

    Args:
        given: A tokenizer, a function of a text, the path of a ``tokenizer.json``, or ``"tiktoken:NAME"``.
        name: What a function is known by.
        allow_special: Whether special tokens that stand in a text become these.
        conversations: Whether it is to encode conversations, by its chat template.

    Raises:
        UsageError: It is none of these, or cannot do what is asked for; says what can.
        MissingExtraError: A tokenizer is named whose library is not installed.
    """
    if isinstance(given, Tokenizer):
        return given
    if isinstance(given, str | os.PathLike):
        given = _named(os.fspath(given), conversations)
    library = _library_of(given)
    if library is None and not callable(given):
        raise UsageError(f"the tokenizer cannot be {given!r}", hint=_HINT)
    if library is not None and name is not None:
        raise UsageError(
            f"tokenizer_id={name!r} beside a tokenizer that is known by what it holds",
            hint="leave tokenizer_id out: it names a function, or the tokenizer of tokens that come ready",
        )
    if conversations and library != "transformers":
        raise UsageError(
            "messages are tokenized by a chat template, which only tokenizers of transformers have",
            hint="give transformers.AutoTokenizer.from_pretrained(...), or make ids and loss_mask with transform=",
        )
    if library is None:
        return _function(given, name)
    if library == "tiktoken":
        return _known("tiktoken", _tiktoken_content(given), allow_special, given.max_token_value + 1)
    backend = given if library == "tokenizers" else _backend(given)
    content = _tokenizers_content(backend)
    vocabulary = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    if conversations:
        return _known("chat", {"tokenizer": content, **_chat_content(given)}, allow_special, vocabulary)
    return _known("tokenizers", content, allow_special, vocabulary)


def _known(kind: Kind, content: Any, allow_special: bool, vocabulary: int) -> Tokenizer:
    data = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    special = " with special tokens" if allow_special else ""
    identity = f"{kind} {xxhash.xxh3_64_hexdigest(data)}{special}"
    return Tokenizer(kind, identity, zlib.compress(data), None, allow_special, vocabulary)


def _function(given: Encode, name: str | None) -> Tokenizer:
    if name is None:
        raise UsageError(
            f"tokenizer={getattr(given, '__name__', given)!r} is a function, which only its name tells from others",
            hint="name it and its version: PackedSequences(tokenizer_id='my-words-1')",
        )
    return Tokenizer("function", name, b"", given)


def _named(text: str, conversations: bool) -> Any:
    """The tokenizer that a text means."""
    library, colon, name = text.partition(":")
    if colon and library == "tiktoken":
        tiktoken = require("tiktoken", extra="text", purpose="for that tokenizer")
        try:
            return tiktoken.get_encoding(name)
        except ValueError:
            known = ", ".join(tiktoken.list_encoding_names())
            raise UsageError(f"tiktoken has no encoding {name!r}", hint=f"it has {known}") from None
    path = Path(text)
    if conversations and path.is_dir():
        return _pretrained(path)
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise UsageError(f"there is no tokenizer {text!r}", hint=_HINT)
    try:
        return require("tokenizers", extra="text", purpose="to tokenize").Tokenizer.from_file(str(file))
    except Exception as error:  # a bare Exception is what that library raises
        raise UsageError(f"{file} cannot be read as a tokenizer: {error}", hint=_HINT) from error


def _pretrained(path: Path) -> Any:
    """The tokenizer of transformers in a directory, of which no code is run."""
    transformers = require("transformers", extra="chat", purpose="for chat templates")
    try:
        return transformers.AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise UsageError(
                f"the tokenizer in {path} needs Python code from its directory, which is never run",
                hint="read that code, load the tokenizer by transformers, and give PackedSequences(tokenizer=...)",
            ) from error
        raise UsageError(f"{path} cannot be read as a tokenizer: {error}", hint=_HINT) from error


def _library_of(given: Any) -> str | None:
    for kind in type(given).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in ("tokenizers", "tiktoken", "transformers"):
            return root
    return None


def _backend(given: Any) -> Any:
    backend = getattr(given, "backend_tokenizer", None)
    if backend is None or _library_of(backend) != "tokenizers":
        raise UsageError(
            f"{type(given).__name__} is none of the fast tokenizers of transformers",
            hint="load it with use_fast=True, or give a function that calls it, with PackedSequences(tokenizer_id=...)",
        )
    return backend


def _tokenizers_content(given: Any) -> Any:
    try:
        content = json.loads(given.to_str())
    except Exception as error:  # parts of it that are written in Python have no JSON
        raise UsageError(
            f"the tokenizer cannot be written down: {error}",
            hint="give a function that calls it, with PackedSequences(tokenizer_id=...)",
        ) from error
    return content | {"truncation": None, "padding": None}


def _chat_content(given: Any) -> dict[str, Any]:
    template = given.chat_template
    if not isinstance(template, str):
        why = "several chat templates" if template else "no chat template"
        raise UsageError(
            f"the tokenizer has {why}, and messages are to be tokenized", hint="set tokenizer.chat_template to one text"
        )
    if not _GENERATION.search(template):
        raise UsageError(
            "the chat template does not mark what the assistant says",
            hint="put {% generation %} and {% endgeneration %} around it, as transformers' documentation shows",
        )
    special = {name: str(token) for name, token in given.special_tokens_map.items() if isinstance(token, str)}
    return {"chat_template": template, "special_tokens": special}


def _tiktoken_content(given: Any) -> dict[str, Any]:
    ranks = sorted(private(given, "_mergeable_ranks", "tiktoken").items(), key=lambda one: one[1])
    return {
        "pattern": private(given, "_pat_str", "tiktoken"),
        "ranks": [[base64.b64encode(token).decode(), rank] for token, rank in ranks],
        "special_tokens": dict(private(given, "_special_tokens", "tiktoken")),
    }


def _tokenizers_tokenizer(content: Any, *, allow_special: bool) -> Any:
    tokenizer = require("tokenizers", extra="text", purpose="to tokenize").Tokenizer.from_str(json.dumps(content))
    tokenizer.encode_special_tokens = not allow_special  # True: as the characters that they are
    return tokenizer


def _tiktoken_encoding(content: Mapping[str, Any]) -> Any:
    return require("tiktoken", extra="text", purpose="to tokenize").Encoding(
        "of-shardstream",
        pat_str=content["pattern"],
        mergeable_ranks={base64.b64decode(token): rank for token, rank in content["ranks"]},
        special_tokens=content["special_tokens"],
    )


@lru_cache(maxsize=4)
def _encode(made: Tokenizer) -> Encode:
    if made.kind == "tiktoken":
        encoding = _tiktoken_encoding(made.held())
        allowed: Any = "all" if made.allow_special else set()
        return lambda text: encoding.encode_to_numpy(text, allowed_special=allowed, disallowed_special=())
    tokenizer = _tokenizers_tokenizer(made.held(), allow_special=made.allow_special)
    # Without the places of tokens in the text it takes two thirds of the time, but there it would begin threads, which
    # a user's process that forks later is warned of: there where it may not.
    if os.environ.get("TOKENIZERS_PARALLELISM", "true").lower() in _ONE_THREAD:
        return lambda text: tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


@lru_cache(maxsize=4)
def _token(made: Tokenizer) -> Callable[[str], int | None]:
    held = made.held()
    if made.kind == "tiktoken":
        special, ranks = held["special_tokens"], {base64.b64decode(token): rank for token, rank in held["ranks"]}
        return lambda name: special.get(name, ranks.get(name.encode("utf-8", "replace")))
    tokenizer = _tokenizers_tokenizer(held["tokenizer"] if made.kind == "chat" else held, allow_special=True)
    return tokenizer.token_to_id  # type: ignore[no-any-return]


@lru_cache(maxsize=4)
def _converse(made: Tokenizer) -> Callable[[list[Any]], Tokens]:
    held = made.held()
    backend = _tokenizers_tokenizer(held["tokenizer"], allow_special=True)
    special = [token.content for token in backend.get_added_tokens_decoder().values() if token.special]
    transformers = require("transformers", extra="chat", purpose="for chat templates")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **held["special_tokens"])
    template = held["chat_template"]
    spoken = re.compile("|".join(map(re.escape, special))) if special and not made.allow_special else None

    def converse(messages: list[Any]) -> Tokens:
        if spoken is not None:
            _check_spoken(messages, spoken)
        found = tokenizer.apply_chat_template(
            messages, chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        return Tokens(found["input_ids"], np.asarray(found["assistant_masks"], np.uint8))

    return converse


def _check_spoken(messages: Iterable[Any], special: re.Pattern[str]) -> None:
    """Refuse special tokens in what is said: they would end a turn, or begin one."""
    for number, message in enumerate(messages):
        found = special.search(json.dumps(message, ensure_ascii=False))
        if found is not None:
            raise ValueError(f"message {number} has the special token {found[0]!r} in it, see allow_special")
