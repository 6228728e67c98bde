"""Files that other projects test their readers with: what these read, ours reads too, or calls unsupported.

``SHARDSTREAM_CORPORA=FOLDER`` names a folder of Parquet and Arrow files, such as apache/parquet-testing and
apache/arrow-testing; without it, there is nothing to compare.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.errors import UnsupportedError

FOLDER = os.environ.get("SHARDSTREAM_CORPORA")
SUFFIXES = {".parquet": ".parquet", ".arrow_file": ".arrow", ".stream": ".arrow"}
FILES = [path for path in sorted(Path(FOLDER).rglob("*")) if path.suffix in SUFFIXES] if FOLDER else []
# pyarrow takes pages for whole whose headers promise more bytes than there are.
MALFORMED = {"nation.dict-malformed.parquet"}


def is_read(path: Path) -> bool:
    """Whether pyarrow reads a file."""
    arrow: Any = pytest.importorskip("pyarrow")
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    try:
        if path.suffix == ".parquet":
            parquet.read_table(path)
        else:
            data = path.read_bytes()
            (arrow.ipc.open_file if data.startswith(b"ARROW1") else arrow.ipc.open_stream)(data).read_all()
    except (arrow.ArrowException, OSError):
        return False
    return True


@pytest.mark.skipif(not FOLDER, reason="SHARDSTREAM_CORPORA names no folder")
def test_what_its_own_reader_reads_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    compared, told = 0, list[str]()
    for number, path in enumerate(FILES):
        if path.name in MALFORMED or not is_read(path):
            continue
        place = tmp_path / f"{number}{SUFFIXES[path.suffix]}"
        shutil.copy(path, place)
        compared += 1
        try:
            reader = ss.Reader(place)
            for row in range(min(len(reader), 3)):
                reader[row]
        except UnsupportedError as error:
            told.append(f"{error.what}; {error.hint}")
        place.unlink()
    assert compared > len(told)
    assert "damaged" not in " ".join(told)
