"""``PackedSequences``: what is asked for where documents become bins."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cached_property
from typing import Any

from shardstream.errors import UsageError
from shardstream.options import PACK, check_choices, option, options_of
from shardstream.pack.bins.binning import Binning, Long, Packing, TokenDtype
from shardstream.pack.bins.texts import DEFAULT_SECONDS, TEXT_FIELDS, Texts, find_text
from shardstream.pack.bins.tokenizers import Tokenizer, tokenizer_of
from shardstream.shards.field_names import check_field_name

_OF_TEXT = ("text_field", "messages", "template_seconds", "allow_special")


@dataclass(frozen=True)
class PackedSequences:
    """How documents become bins: rows of so many tokens, of several documents each (``docs/text.md``).

    It is ``bins=`` of `pack` and of `repack`, which takes ``length``, ``min``, ``packing`` and ``long``. ``bins=8192``
    is short for ``PackedSequences(8192)``.

    Attributes:
        length: Tokens of a bin, which is filled as well as can be.
        min: Length of the shortest rows that bins may be read as without cutting a document that fits into one:
            ``length`` divided by a power of two. Default: a quarter of ``length``, where that is even.
        packing: ``"fit"`` (default): no document is cut that fits into a bin. ``"concat"``: they are laid end to end,
            and cut wherever a bin ends.
        long: What becomes of documents that are longer than a bin. ``"split"`` (default) makes full bins and a rest of
            them, ``"reject"`` leaves them out, as rejects, ``"truncate"`` stores their beginning.
        field: The field that holds the tokens of a document: integers in a list, or an array of one dimension. Default
            ``"ids"``. Beside them a document has numbers, text and JSON, and may have ``loss_mask``: 1 for each token
            that is learned from, else 0.
        pad: The token that fills up what stays free in a bin, by its number (default 0), or its text where there is a
            tokenizer.
        token_dtype: ``"uint16"`` or ``"uint32"``, as tokens are stored. A token that does not fit rejects its document.
            Default: uint16 where a tokenizer has at most 65,536 tokens, else uint32.
        tokenizer: What makes tokens of texts, in the workers: a tokenizer of ``tokenizers``, ``transformers`` (a fast
            one) or ``tiktoken``, the path of a ``tokenizer.json`` or of its directory, ``"tiktoken:o200k_base"``, or a
            function of a ``str`` that returns integers. Default: documents have tokens, in ``field``.
        tokenizer_id: What a function is known by, with its version: another one is another data set, and tokens of two
            are not appended to each other. Also for tokens that come ready.
        text_field: The field that holds the text of a document. Tokens take its place. Default: ``"text"``, or the one
            of ``"content"``, ``"body"``, and ``"raw_content"`` that documents have.
        messages: The field that holds a conversation, a list of ``{"role": ..., "content": ...}``, in place of a text:
            it becomes one document by the chat template of ``tokenizer``, a tokenizer of ``transformers``. What the
            assistant says is learned from, as the template marks it.
        template_seconds: Processor time that the chat template may take for one conversation. A conversation that takes
            longer is rejected: a template is a program, which can run forever. Default: 10.
        bos: A token that is put before each document, by its number or its text. Default: none.
        eos: One that is put behind each. Default: none.
        allow_special: Let special tokens that stand in a text become these. By default they are characters as others
            are, and a conversation with one in it is rejected.

    Raises:
        UsageError: A value that is not allowed; says which are.

    Example:
        >>> bins = ss.PackedSequences(8192, eos=0)
    """

    length: int = option(
        None,  # refused below: the command line leaves it out, too
        "Make samples rows of so many tokens, of several documents each.",
        was="bins",
        metavar="TOKENS",
        least=1,
    )
    _: KW_ONLY
    field: str = option(
        "ids", "The field that holds the tokens of a document.", was="bin_field", metavar="FIELD", verbs=PACK
    )
    min: int | None = option(
        None,
        "Shortest rows that bins are read as without cutting what fits. (default: a quarter of --bins)",
        was="bin_min",
        metavar="TOKENS",
        least=1,
    )
    packing: Packing = option("fit", "fit: no document is cut that fits into a bin; concat: end to end, and cut.")
    long: Long = option("split", "Documents longer than a bin: full bins and a rest, left out, or their beginning.")
    pad: int | str = option(0, "The token that fills up a bin: its number, or its text.", metavar="TOKEN", verbs=PACK)
    token_dtype: TokenDtype | None = option(
        None,
        "uint16 or uint32, as tokens are stored. (default: uint16 if a tokenizer has few enough, else uint32)",
        verbs=PACK,
    )
    tokenizer: Any = option(
        None,
        "What makes tokens of texts: a tokenizer.json or its folder, tiktoken:NAME, or a function by module and name.",
        was="tokenize",
        metavar="FILE|MODULE:NAME",
        verbs=PACK,
    )
    text_field: str | None = option(
        None,
        "The field that holds the text of a document. (default: text, content, body, or raw_content)",
        metavar="FIELD",
        verbs=PACK,
    )
    messages: str | None = option(
        None, "The field that holds a conversation, for --tokenize's chat template.", metavar="FIELD", verbs=PACK
    )
    template_seconds: float = option(
        DEFAULT_SECONDS, "Processor time that the chat template may take for one conversation.", least=0, verbs=PACK
    )
    bos: int | str | None = option(
        None, "Token to put before each document: its number, or its text.", metavar="TOKEN", verbs=PACK
    )
    eos: int | str | None = option(None, "Token to put behind each document.", metavar="TOKEN", verbs=PACK)
    allow_special: bool = option(False, "Let special tokens in texts become these.", verbs=PACK)
    tokenizer_id: str | None = option(
        None, "What a function, or the tokenizer of ready tokens, is known by.", metavar="NAME", verbs=PACK
    )

    def __post_init__(self) -> None:
        length: object = self.length
        if length is None:
            given = [one.name for one in fields(self) if getattr(self, one.name) != one.default]
            flag = options_of(type(self))[given[0]].flag if given else ""
            named = f"{given[0]} ({flag}) is an option of bins" if given else "bins have no length"
            raise UsageError(named, hint="say how long they are: bins=PackedSequences(8192, ...) (--bins 8192)")
        check_choices(self)
        _ = self.binning
        if self.texts is not None:  # large ones take a second to be written down
            object.__setattr__(self, "tokenizer", self.texts.tokenizer)

    @classmethod
    def of(cls, length: int) -> PackedSequences:
        """Bins of so many tokens."""
        return cls(length)

    @cached_property
    def binning(self) -> Binning:
        """How documents become bins.

        Raises:
            UsageError: An option that is not allowed.
        """
        tokenizer = None if self.texts is None else self.texts.tokenizer
        small = tokenizer is not None and tokenizer.fits("uint16")
        pad: Any = self._token("pad", tokenizer)
        return Binning(
            self.length,
            self.field,
            self.min or 0,
            self.packing,
            self.long,
            pad,
            self.token_dtype or ("uint16" if small else "uint32"),
            self._token("bos", tokenizer),
            self._token("eos", tokenizer),
            self.tokenizer_id if tokenizer is None else tokenizer.identity,
        )

    @cached_property
    def texts(self) -> Texts | None:
        """How texts become tokens; ``None`` where they are tokens.

        Raises:
            UsageError: A tokenizer that is none, or an option of text without one.
        """
        if self.tokenizer is None:
            for one in fields(self):
                if one.name in _OF_TEXT and getattr(self, one.name) != one.default:
                    raise UsageError(
                        f"{one.name} is an option of texts that are tokenized",
                        hint="say by what: bins=PackedSequences(8192, tokenizer=...) (--tokenize)",
                    )
            return None
        name = (self.text_field or TEXT_FIELDS[0]) if self.messages is None else self.messages
        check_field_name(name)
        _check_seconds(self.template_seconds)
        conversations = self.messages is not None
        special = self.allow_special
        made = tokenizer_of(self.tokenizer, name=self.tokenizer_id, allow_special=special, conversations=conversations)
        return Texts(made, name, conversations, self.template_seconds)

    @property
    def document_field(self) -> str:
        """The field that makes a document what it is."""
        return self.field if self.texts is None else self.texts.field

    def reading(self, fields: Collection[str], *, url: str) -> PackedSequences:
        """The same with the field of texts that documents have.

        Args:
            fields: The fields that some documents have.
            url: The source, for messages.

        Raises:
            UsageError: No field, or several, may hold the text.
        """
        if self.texts is None:
            return self
        given = self.texts.field if self.texts.conversations else self.text_field
        found = find_text(given, fields, conversations=self.texts.conversations, url=url)
        return self if self.texts.conversations else replace(self, text_field=found)

    def _token(self, name: str, tokenizer: Tokenizer | None) -> int | None:
        """The number of a token that an option names."""
        given = getattr(self, name)
        if not isinstance(given, str):
            return given  # type: ignore[no-any-return] # what it is not, `Binning` refuses
        found = None if tokenizer is None else tokenizer.token(given)
        if found is None:
            who = "no tokenizer is given that knows it" if tokenizer is None else "the tokenizer has no such token"
            raise UsageError(f"{name} names the token {given!r}, and {who}", hint="give it by its number")
        return found


def _check_seconds(seconds: object) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise UsageError(
            f"template_seconds must be a number above 0, got {seconds!r}", hint="leave it out for 10 seconds"
        )
