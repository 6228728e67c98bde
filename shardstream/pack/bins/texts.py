"""The texts of samples, and what is said in them, as tokens."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from shardstream.pack.bins.tokenizers import Tokenizer, Tokens
from shardstream.pack.encode.files import Unreadable

DEFAULT_SECONDS = 10.0
"""Processor time of a chat template for one conversation: most take milliseconds."""


@dataclass(frozen=True, slots=True)
class Texts:
    """How texts become tokens.

    Attributes:
        tokenizer: What makes tokens of them.
        field: The field that holds the text of a sample, or its messages.
        conversations: Whether these are messages of a conversation.
        seconds: Processor time that a chat template may take for one of them.
    """

    tokenizer: Tokenizer
    field: str
    conversations: bool = False
    seconds: float = DEFAULT_SECONDS

    @property
    def rendering(self) -> Rendering | None:
        """The part of `tokens` that runs a chat template, which is done in another process."""
        return Rendering(self.tokenizer, self.seconds) if self.conversations else None

    def tokens(self, values: dict[str, Any]) -> Generator[Any, Tokens, Tokens]:
        """The tokens of a sample, whose text is taken out of its values.

        A generator: it yields what `rendering` is to be called with, and is sent the result, or thrown the error.

        Raises:
            Unreadable: It has none, or no text; the tokenizer raises.
        """
        if self.field not in values:
            raise Unreadable(f"it has no field {self.field!r}, which holds its {self._called}")
        value = values.pop(self.field)
        if not self.conversations:
            return Tokens(self._encoded(self._text(value)))
        return (yield from self._conversation(value))

    @property
    def _called(self) -> str:
        return "messages" if self.conversations else "text"

    def _text(self, value: object) -> str:
        if isinstance(value, bytes | memoryview):
            try:
                return str(value, "utf-8")
            except UnicodeDecodeError as error:
                raise Unreadable(f"field {self.field!r} is not valid UTF-8, at byte {error.start}") from error
        if not isinstance(value, str):
            raise Unreadable(f"field {self.field!r} is {type(value).__name__}, not text")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise Unreadable(
                    f"field {self.field!r} is not Unicode: a lone surrogate at character {error.start}"
                ) from error
        return value

    def _encoded(self, text: str) -> Any:
        return None if not text else _guarded(self.tokenizer.encode, text)

    def _conversation(self, messages: object) -> Generator[Any, Tokens, Tokens]:
        if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
            raise Unreadable(f"field {self.field!r} is not a list of messages with role and content")
        if not messages:
            return Tokens(None)
        found = yield messages
        if not found.learned.any():
            raise Unreadable("the assistant says nothing in it")
        return found


@dataclass(frozen=True, slots=True)
class Rendering:
    """Make tokens of a conversation by a chat template, which is a program of whoever wrote it.

    Attributes:
        tokenizer: The tokenizer, with its template.
        seconds: As of `Texts`.
    """

    tokenizer: Tokenizer
    seconds: float

    def __call__(self, messages: list[Any]) -> Tokens:
        """The tokens; `Unreadable` if the template or the tokenizer raises."""
        found: Tokens = _guarded(self.tokenizer.converse, messages)
        return found

    def prepare(self) -> None:
        """Build the tokenizer."""
        _ = self.tokenizer.converse

    def ended(self, how: str) -> Unreadable:
        """The error for a conversation that took too long, or ended the process."""
        return Unreadable(f"the chat template {how}")


def _guarded(encode: Callable[[Any], Any], value: Any) -> Any:
    """What a tokenizer makes of it; `Unreadable`, whatever it raises."""
    try:
        return encode(value)
    except BaseException as error:
        # What is written in Rust may panic over a text, which is no Exception: it left the tokenizer as it was.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise Unreadable(f"the tokenizer raised {type(error).__name__}: {error}") from error
