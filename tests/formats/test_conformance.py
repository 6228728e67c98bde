"""Every built-in format against the conformance class that formats of plug-ins are held to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.formats.registry import format_named
from tests.formats.catalog.every import SETS
from tests.formats.damaging import ConformanceWithFullDamage

CUTS_UNSEEN = {
    "coco": "an image is a file of its own, of any size",
    "files": "a value is a file of its own, of any size",
    "yolo": "a label file is lines of text",
}


class OfFormat(ConformanceWithFullDamage):
    __test__ = False
    _samples: Sequence[tuple[str, dict[str, Any]]] | None = None

    @pytest.fixture(autouse=True)
    def _home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def write(self, folder: Path) -> Sequence[tuple[str, dict[str, Any]]]:
        SETS[self.format.name].make(folder)
        if self._samples is None:  # their values are compared with other libraries' in test_every_format.py
            type(self)._samples = self._read_by_reader(folder)
        assert self._samples is not None
        return self._samples

    def _read_by_reader(self, folder: Path) -> Sequence[tuple[str, dict[str, Any]]]:
        reading = ss.SourceOptions(format=self.format.name, options=self.options or None)
        fields = ss.ShardDataset(folder, reading=reading).manifest.fields
        raw = {name: "bytes" if kind.is_image else None for name, kind in fields.items()}
        samples = [dict(one) for one in ss.Reader(folder, fields=raw, reading=reading)]
        return [(one.pop("__key__"), {n: v for n, v in one.items() if not n.startswith("__")}) for one in samples]


def of_format(name: str) -> type[OfFormat]:
    members = {
        "__test__": True,
        "__module__": __name__,
        "format": format_named(name),
        "options": SETS[name].options,
        "tells_cuts": name not in CUTS_UNSEEN,
    }
    return type(f"Test_{name.replace('-', '_')}", (OfFormat,), members)


globals().update({one.__name__: one for one in map(of_format, SETS)})
