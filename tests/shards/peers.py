"""Other programs that read tar shards."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import tarfile
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

webdataset = pytest.importorskip("webdataset", reason="the peer webdataset is not installed")


def webdataset_samples(path: Path) -> list[tuple[str, dict[str, bytes]]]:
    """Key and fields of each sample, as the package webdataset yields them; keys unescaped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its files open
        found: list[dict[str, Any]] = list(webdataset.WebDataset(str(path), shardshuffle=False))
        gc.collect()
    return [
        (unquote(one["__key__"]), {name: value for name, value in one.items() if not name.startswith("__")})
        for one in found
    ]


def split_at_the_first_dot(path: Path) -> list[tuple[str, dict[str, bytes]]]:
    """The same by a reader that splits names at the first dot and leaves out what has none, as Hugging Face's does."""
    with tarfile.open(path) as archive:
        members = [
            (*name.split(".", 1), archive.extractfile(name).read()) for name in archive.getnames() if "." in name
        ]
    groups = itertools.groupby(members, key=lambda member: member[0])
    return [(unquote(key), {field: data for _, field, data in group}) for key, group in groups]


def gnu_tar_names(path: Path) -> list[str]:
    """Names of the members as GNU tar lists them; it must not complain."""
    done = subprocess.run(
        ["tar", "--quoting-style=literal", "-tf", path],
        capture_output=True,
        check=True,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
    )
    assert done.stderr == b""
    return done.stdout.decode().splitlines()
