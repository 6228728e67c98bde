"""Files that hold many samples each, by their names: they are never packed as if each were a sample."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from shardstream.dataset.opening import folder_of_data
from shardstream.errors import SourceError
from shardstream.formats.catalog import CATALOGUE_NAME
from shardstream.formats.jsonl.first_rows import is_rows_name, rows_names
from shardstream.formats.scans.names import accompanies, tells_detection
from shardstream.images.formats import BY_SUFFIX
from shardstream.names.braces import without_braces
from shardstream.names.globs import glob_pattern, split_glob
from shardstream.names.missing import instead_of
from shardstream.names.strays import find_stray
from shardstream.pack.sources.listings import FileListing
from shardstream.pack.sources.lists.columns import Wanted
from shardstream.pack.sources.lists.source import suffix_of
from shardstream.pack.sources.look import Look
from shardstream.pack.sources.paths import common_folder, scheme_of
from shardstream.pack.sources.tars import COMPRESSED_TARS, is_tar
from shardstream.shards.heads import MANIFEST_NAME
from shardstream.storage import Location, open_store
from shardstream.storage.base.address import absolute

TABLES = (".parquet", ".arrow", ".feather")
_FILES = re.compile(
    r"\.(tar|mds|rec|mdb|lmdb|zip|beton|h5|hdf5)$|\.tfrecords?(-[0-9]+(-of-[0-9]+)?)?$|-of-[0-9]{5}$", re.IGNORECASE
)
# Others that no list of files is called like; there may be no format for them.
_OTHERS = re.compile(r"\.(mds\.\w+|lance|array_?record|tfrecords?\.\w+)$", re.IGNORECASE)
# What may be the value of one sample, too: it holds many where somebody names this one file, or the format.
_ARRAYS = re.compile(r"\.(npy|npz|bin|idx)$", re.IGNORECASE)
_MARKS = ("index.json", CATALOGUE_NAME)  # at the top of a folder that is a data set of some library
_SHOWN = 3


def is_container(name: str) -> bool:
    """Whether a file is called like one that holds many samples.

    >>> is_container("a/train-00000-of-00128"), is_container("b.parquet"), is_container("c.npy")
    (True, True, False)
    """
    lower = name.lower()
    return bool(_FILES.search(name) or _OTHERS.search(name)) or lower.endswith((*TABLES, *COMPRESSED_TARS))


def is_table(name: str) -> bool:
    """Whether a file, or files of a pattern, are called like tables, whose rows may name files."""
    return suffix_of(name) in TABLES


def names_containers(text: str) -> bool:
    """Whether a path, URL, list in braces or glob is called like files of another library's data."""
    name = text.partition("?")[0] if "://" in text else text
    alone = os.path.lexists(text) or split_glob(text) is None
    return is_tar(name) or bool(_FILES.search(name) or _OTHERS.search(name) or (alone and _ARRAYS.search(name)))


class NamedFiles(NamedTuple):
    """Files that a user named.

    Attributes:
        root: A folder that all of them are below.
        names: Their names there; in a store perhaps globs.
    """

    root: Location
    names: tuple[str, ...]


def named_files(text: str, at: Callable[[str], Location]) -> NamedFiles:
    """The files that a path, URL, list in braces or glob names.

    Args:
        text: What the user wrote.
        at: Gives the place of a path or URL.

    Raises:
        SourceError: One is not there, or none matches.
        UsageError: Braces that cannot be read.
    """
    paths = [text] if "://" not in text and os.path.lexists(text) else without_braces(text)
    found = [one for path in paths for one in _expanded(path, at)]
    if not found:
        raise SourceError(f"there is no such {kind_of_file(text)}", url=text, hint=instead_of(text))
    if len(found) == 1 and split_glob(found[0]) is None:
        place = at(found[0])
        root = place.parent() if folder_of_data(place.url) == place.url.rpartition("/")[0] else place.parent().parent()
        return NamedFiles(root, (place.url[len(root.url) :].lstrip("/"),))
    common = common_folder(min(found), max(found))
    globbed = split_glob(common)
    folder = common if globbed is None else f"{globbed[0]}/"
    return NamedFiles(at(folder or "."), tuple(path[len(folder) :] for path in found))


def kind_of_file(text: str) -> str:
    """What messages call files of this name."""
    return "tar file" if is_tar(text) else "file"


def _expanded(path: str, at: Callable[[str], Location]) -> Iterator[str]:
    """A path; those that match a glob, in order. A glob of a store stays as it is where the store can match it."""
    web = scheme_of(path) in ("http", "https")
    there = "://" not in path and os.path.lexists(path)
    chosen = None if web or there else split_glob(path)
    if chosen is None:
        if "://" not in path and not there:
            raise SourceError(f"there is no such {kind_of_file(path)}", url=absolute(path), hint=instead_of(path))
        yield path
    elif "://" in path and "**" not in chosen[1]:
        yield path
    else:
        folder = chosen[0].rstrip("/")
        yield from (f"{folder}/{one.path}" for one in FileListing(at(chosen[0]), chosen[1]).entries())


def may_be_foreign(folder: Location, look: Look) -> bool:
    """Whether a folder may be a data set of another library, so that it is worth to list all of it."""
    store = open_store(folder)
    if store.exists(MANIFEST_NAME):
        return False
    if any(store.exists(name) for name in _MARKS):
        return True
    if _has_indexed_tokens(look.names) or any(map(tells_detection, look.names)):
        return True
    if rows_names(_in_tables(look.names), named=False):
        return True
    if look.whole and _are_arrays(look.names, folder):
        return True
    return bool(_containers(look.names)) if look.whole else _mostly_containers(look.names)


def _are_arrays(names: Sequence[str], folder: Location) -> bool:
    """Whether there is one ``.npy`` or ``.npz`` file and nothing else, or arrays that are fields of some samples."""
    found = [name for name in names if not accompanies(name)]
    if len(found) == 1:
        return found[0].lower().endswith((".npy", ".npz"))
    if not all(name.lower().endswith(".npy") for name in found):
        return False
    from shardstream.formats.npy import fields_of_samples

    return fields_of_samples(open_store(folder), found) is not None


def first_table(listing: FileListing, look: Callable[[], Look]) -> str | None:
    """The first of the tables that a folder, or a pattern whose end says nothing, has rather than anything else.

    ``None`` where it has other files.

    Args:
        listing: The folder, or pattern.
        look: Gives what is in the folder.
    """
    pattern = listing.pattern
    if pattern is not None and not _says_nothing(pattern):
        return None
    matches = glob_pattern(pattern or "**").fullmatch
    names = [name for name in look().names if pattern is None or matches(name)]
    found = [name for name in (names if pattern else _in_tables(names)) if is_container(name)]
    tables = found and all(name.lower().endswith(TABLES) for name in found)
    if not tables or len(found) <= _pictures(names) or open_store(listing.root).exists(MANIFEST_NAME):
        return None
    return min(found)


def _in_tables(names: Sequence[str]) -> list[str]:
    """Those that are data in a folder of Parquet or JSON Lines."""
    return [name for name in names if find_stray(name, tables=True) is None]


def may_be_rows(text: str, wanted: Wanted) -> bool:
    """Whether a file, or those of a pattern, may be JSON lines whose rows are samples.

    With columns or types that are chosen they are a list, whose reader makes more of columns.
    """
    return not wanted.fields and is_rows_name(text.partition("?")[0] if "://" in text else text)


def _has_indexed_tokens(names: Sequence[str]) -> bool:
    """Whether there is an ``.idx`` file beside a ``.bin`` file of its name, as Megatron writes them."""
    there = set(names)
    return any(f"{name[:-4]}.bin" in there for name in names if name.endswith(".idx"))


def may_match_containers(listing: FileListing, look: Callable[[], Look]) -> bool:
    """Whether a pattern whose end says nothing, such as ``train-*``, is one of other libraries'; see `first_table`."""
    pattern = listing.pattern or ""
    if not _says_nothing(pattern):
        return False
    matches = glob_pattern(pattern).fullmatch
    return _mostly_containers([name for name in look().names if matches(name)])


def _says_nothing(pattern: str) -> bool:
    """Whether the end of a pattern does not tell what kind of files it matches."""
    name = pattern.rpartition("/")[2]
    return "." not in name or split_glob(name.rpartition(".")[2]) is not None


def _containers(names: Sequence[str]) -> list[str]:
    """Those that a format may take, if there are any."""
    found = [name for name in names if is_container(name)]
    listed = (*TABLES, *COMPRESSED_TARS)  # packed as they are, where they are named
    return [] if all(name.lower().endswith(listed) for name in found) else found


def _mostly_containers(names: Sequence[str]) -> bool:
    return len(_containers(names)) > _pictures(names)


def _pictures(names: Sequence[str]) -> int:
    return sum(name.rpartition(".")[2].lower() in BY_SUFFIX for name in names)


def holds_containers(url: str, examples: Sequence[str], count: int) -> SourceError:
    """The error for a folder of files that hold many samples each, which no format takes for its own.

    Args:
        url: The folder.
        examples: Some of their names.
        count: How many there are.
    """
    shown = ", ".join(examples[:_SHOWN]) + (", ..." if count > _SHOWN else "")
    first = examples[0].lower()
    end = next((end for end in (*COMPRESSED_TARS, *TABLES) if first.endswith(end)), None)
    if end is not None:
        depth = "**/" if "/" in examples[0] else ""
        hint = f"name the files: {url.rstrip('/')}/{depth}*{end}"
    else:
        which = "--source-format (reading=SourceOptions(format=...)) says what they are"
        hint = f"{which}, docs/foreign.md which formats there are"
    many = f"{count} files here hold" if count > 1 else "a file here holds"
    return SourceError(
        f"{many} many samples each, and would be packed as bytes: {shown}"
        if count > 1
        else f"{many} many samples, and would be packed as bytes: {shown}",
        url=url,
        hint=hint,
    )
