"""Text in UTF-8. Text in any other encoding is valid, and not read."""

from __future__ import annotations

from shardstream.errors import UnsupportedError

FROM_UTF16 = "write it in UTF-8: iconv -f UTF-16 -t UTF-8 OLD > NEW"


def is_utf16(start: bytes) -> bool:
    """Whether a file begins with the mark of UTF-16, which PowerShell and Excel write."""
    return start[:2] in (b"\xff\xfe", b"\xfe\xff")


def read_text(data: bytes | memoryview) -> str:
    """The text of its bytes.

    Raises:
        UnsupportedError: They are of another encoding than UTF-8.
    """
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise UnsupportedError(
            f"text in another encoding than UTF-8: byte 0x{data[error.start]:02x} at {error.start}",
            hint="write it in UTF-8: data.decode('latin-1').encode(), if it is Latin-1; on_error='skip' leaves it out",
        ) from error
