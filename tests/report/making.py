"""A data set in which everything that can be text is an attack on whoever shows it."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from shardstream.images.encode import encode
from shardstream.pack.writer import ShardWriter

ATTACKS = (
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(2)>",
    "\"'><svg onload=alert(3)>",
    '" onmouseover="alert(4)" autofocus onfocus="alert(5)',
    "javascript:alert(6);<a href=javascript:alert(7)>",
    "--></script><!--<iframe srcdoc='<script>alert(8)</script>'>",
)


def hostile(folder: Path) -> Path:
    """A sample for each attack, as key, class, caption, JSON, and a picture that is SVG."""
    with ShardWriter(folder, classes=list(ATTACKS), fields={"svg": "bytes"}, damaged="keep") as writer:
        for i, attack in enumerate(ATTACKS):
            sample = {"__key__": f"{i}/{attack}", "cls": i, "caption": attack, "meta.json": {attack: [attack]}}
            sample |= {"svg": f'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(9)">{attack}</svg>'.encode()}
            if i % 2:
                sample["jpg"] = encode(np.full((40, 60, 3), 40 * i, np.uint8), "jpg")
            writer.write(sample)
    return folder


class Tags(HTMLParser):
    """The tags of a page with their attributes, the text outside of scripts and styles, and what is in these."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.inside: dict[str, str] = {}
        self._open = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.inside[self._open] = self.inside.get(self._open, "") + data
        else:
            self.words += data
