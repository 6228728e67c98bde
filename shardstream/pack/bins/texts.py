"""The texts of samples, and what is said in them, as tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardstream.pack.bins.tokenizers import Tokenizer, Tokens
from shardstream.pack.encode.files import Unreadable


@dataclass(frozen=True, slots=True)
class Texts:
    """How texts become tokens.

    Attributes:
        tokenizer: What makes tokens of them.
        field: The field that holds the text of a sample, or its messages.
        conversations: Whether these are messages of a conversation.
    """

    tokenizer: Tokenizer
    field: str
    conversations: bool = False

    def tokens(self, values: dict[str, Any]) -> Tokens:
        """The tokens of a sample, whose text is taken out of its values.

        Raises:
            Unreadable: It has none, or no text; the tokenizer raises.
        """
        if self.field not in values:
            raise Unreadable(f"it has no field {self.field!r}, which holds its {self._called}")
        value = values.pop(self.field)
        return self._conversation(value) if self.conversations else Tokens(self._encoded(self._text(value)))

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

    def _conversation(self, messages: object) -> Tokens:
        if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
            raise Unreadable(f"field {self.field!r} is not a list of messages with role and content")
        if not messages:
            return Tokens(None)
        found: Tokens = _guarded(self.tokenizer.converse, messages)
        if not found.learned.any():
            raise Unreadable("the assistant says nothing in it")
        return found


def _guarded(encode: Callable[[Any], Any], value: Any) -> Any:
    """What a tokenizer makes of it; `Unreadable`, whatever it raises."""
    try:
        return encode(value)
    except BaseException as error:
        # What is written in Rust may panic over a text, which is no Exception: it left the tokenizer as it was.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise Unreadable(f"the tokenizer raised {type(error).__name__}: {error}") from error
