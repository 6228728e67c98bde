"""What ``--storage-option`` and its like say, and how places are shown."""

from __future__ import annotations

import json
from typing import Any

from shardstream.errors import UsageError
from shardstream.storage import locate


def parse_options(texts: list[str] | None, flag: str = "--storage-option") -> dict[str, Any] | None:
    """``KEY=VALUE`` each; ``true``, ``false``, ``{...}`` and ``[...]`` are JSON, all else is text. ``None`` if none.

    Raises:
        UsageError: One that is not of this form; does not repeat its value, which may be a secret.
    """
    if not texts:
        return None
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{flag} wants KEY=VALUE", hint=f"{flag} endpoint=http://localhost:9000")
        options[name.strip()] = _value(flag, name, value)
    return options


def _value(flag: str, name: str, text: str) -> Any:
    if text not in ("true", "false") and text[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise UsageError(
            f"the value of {flag} {name} begins like JSON, but is not valid JSON",
            hint=f"""in the shell: {flag} 'client_kwargs={{"verify": false}}'""",
        ) from None


def format_url(url: str) -> str:
    """What to call a place when speaking to the user: as it was typed, but without what the URL held of secrets."""
    location = locate(url)
    return url if location.local else location.url
