"""The texts of samples, and what is said in them, as tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from typing import Any

from shardstream.errors import UsageError, did_you_mean
from shardstream.pack.bins.tokenizers import Tokenizer, Tokens
from shardstream.pack.encode.files import Unreadable

TEXT_FIELDS = ("text", "content", "body", "raw_content")
"""What fields of texts are called, where nobody names one."""
_CONVERSATIONS = ("messages", "conversations", "conversation", "chat")
_ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "assistant", "model", "function_call"), "assistant"),
    **dict.fromkeys(("tool", "function", "function_response", "observation"), "tool"),
    "system": "system",
}
"""Roles of a message, by whom ShareGPT says that it is from."""
DEFAULT_SECONDS = 10.0
"""Processor time of a chat template for one conversation: most take milliseconds."""


def find_text(given: str | None, fields: Collection[str], *, conversations: bool, url: str) -> str:
    """The field that holds the texts, or messages, of documents.

    Args:
        given: The field that the user named.
        fields: The fields that some documents have.
        conversations: Whether these are messages.
        url: The source, for messages.

    Raises:
        UsageError: There is no such field, or none of the usual ones, or several of them.
    """
    usual = [name for name in TEXT_FIELDS if name in fields]
    if given in fields or (given is None and TEXT_FIELDS[0] in fields):
        return given or TEXT_FIELDS[0]
    flag = "--messages (messages=)" if conversations else "--text-field (text_field=)"
    if given is None and len(usual) > 1:
        raise UsageError(
            f"several fields may hold the text: {', '.join(usual)}", url=url, hint=f"name one: {flag}, as {usual[0]}"
        )
    if given is None and usual:
        return usual[0]
    likely = [name for name in (_CONVERSATIONS if conversations else TEXT_FIELDS) if name in fields]
    meant = f"did you mean {likely[0]!r}? " if likely else did_you_mean(given or TEXT_FIELDS[0], list(fields))
    what = f"no sample has a field {given!r}, which is to hold its {'messages' if conversations else 'text'}"
    if given is None:
        what = f"no field is called {', '.join(TEXT_FIELDS[:-1])}, or {TEXT_FIELDS[-1]}"
    raise UsageError(what, url=url, hint=f"{meant}name it: {flag}; the fields are {', '.join(sorted(fields))}")


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
        found = yield [_message(number, one) for number, one in enumerate(messages)]
        if not found.learned.any():
            raise Unreadable("the assistant says nothing in it")
        return found


def _message(number: int, message: dict[str, Any]) -> dict[str, Any]:
    """A message with role and content; those of ShareGPT have ``from`` and ``value``. `Unreadable` for all else."""
    if "role" in message:
        return message
    if not {"from", "value"} <= message.keys():
        names = ", ".join(map(repr, message)) or "nothing"
        raise Unreadable(
            f"message {number} has {names}, not role and content, or from and value; transform= can convert it"
        )
    who = message["from"]
    role = _ROLES.get(who.lower()) if isinstance(who, str) else None
    if role is None:
        raise Unreadable(
            f"message {number} is from {who!r}, which is none of {', '.join(_ROLES)}; transform= can convert it"
        )
    others = {name: value for name, value in message.items() if name not in ("from", "value")}
    return {"role": role, "content": message["value"], **others}


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
