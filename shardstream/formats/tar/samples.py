"""The samples of a tar: its members, grouped as the webdataset package groups them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from shardstream.errors import FormatError
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import usable_key
from shardstream.formats.tar.headers import TarDamage, TarMember, TarMembers, shown
from shardstream.names.strays import Strays, find_stray

MOST_FIELDS = 512
"""Different extensions in a tar; more of them are names whose first dot does not end a key."""
_MOST_SHAPES = 64  # sets of extensions that samples are compared by, before all keys are looked at
_META = re.compile(r"__[^/]*__($|/)")  # of names at their beginning: what webdataset keeps for itself
_BAD = "__bad__"  # a member of this extension that is not empty makes webdataset drop its sample


class TarSample(NamedTuple):
    """Members of one key.

    Attributes:
        stem: Their name up to the extension.
        members: By extension, in lower case.
    """

    stem: str
    members: dict[str, TarMember]

    @property
    def key(self) -> str:
        """The key in an index."""
        return usable_key(self.stem.removeprefix("./")) or "_"

    @property
    def is_bad(self) -> bool:
        """Whether a member says that the sample is to be left out."""
        return _BAD in self.members and self.members[_BAD].size > 0


def split_name(name: str) -> tuple[str, str] | None:
    """Stem and extension of a member, split at the first dot of its last part; ``None`` of what is not a value.

    >>> split_name("n01.d/0001.Seg.png"), split_name("__meta__/a.json"), split_name("README")
    (('n01.d/0001', 'seg.png'), None, None)
    """
    base = name.rfind("/") + 1
    dot = name.find(".", base)
    if dot < 0:
        return None
    if name.startswith("__") and _META.match(name):
        return None
    if dot == base:
        return None
    if "\n" in name:  # folders above a line feed do not end for webdataset
        begin = name.rfind("/", 0, name.find("\n")) + 1
        dot = name.find(".", begin)
        if dot <= begin or dot < base:
            return None
    return name[:dot], name[dot + 1 :].lower()


class TarSamples:
    """The samples of a tar, in order.

    Args:
        data: The object.
        begin: Where the tar begins in it.
        end: Where it ends; ``None``: at the object's end.
        joined: Put members of one stem together wherever they lie, and not only those that follow one another.

    Attributes:
        strays: Counts the members that are not data by their names.
    """

    def __init__(self, data: ObjectBytes, begin: int = 0, end: int | None = None, *, joined: bool = False) -> None:
        self._data = data
        self._begin = begin
        self._end = data.size if end is None else end
        self._joined = joined
        self.strays = Strays()
        self._shapes: dict[tuple[str, ...], None] | None = {}  # sets of extensions so far; None: keys were compared

    def __iter__(self) -> Iterator[TarSample]:
        """Samples.

        Raises:
            TarDamage: The tar is damaged.
            FormatError: Members that cannot be samples: two of one name, interleaved ones, links to nothing.
        """
        return self._all_joined() if self._joined else self._adjacent()

    def _adjacent(self) -> Iterator[TarSample]:
        tar = TarMembers(self._data, self._begin, self._end)
        whole: set[tuple[str, ...]] = set()
        for sample, last in self._grouped(self._members(tar, self.strays)):
            shape = tuple(sample.members)
            if last and not tar.marked and shape not in whole:
                raise TarDamage("the tar has no end mark", next(iter(sample.members.values())).header)
            if sample.is_bad:
                continue
            if self._shapes is not None and shape not in self._shapes:
                self._meet(shape)
            if len(whole) < _MOST_SHAPES:
                whole.add(shape)
            yield sample

    def _all_joined(self) -> Iterator[TarSample]:
        samples: dict[str, TarSample] = {}
        try:
            for member in self._members(TarMembers(self._data, self._begin, self._end), self.strays):
                if (parts := split_name(member.name)) is not None:
                    stem, extension = parts
                    self._put(samples.setdefault(stem, TarSample(stem, {})), extension, member)
        except TarDamage as error:
            raise self._data.damaged(
                f"{error.what}: samples whose members lie apart are not known to be whole", error.offset
            ) from None
        yield from (sample for sample in samples.values() if not sample.is_bad)

    def _grouped(self, members: Iterable[TarMember]) -> Iterator[tuple[TarSample, bool]]:
        """Samples of members that follow one another, and whether it is the last."""
        stem: str | None = None
        sample = TarSample("", {})
        try:
            for member in members:
                parts = split_name(member.name)
                if parts is None:
                    continue
                if parts[0] != stem:
                    if stem is not None:
                        yield sample, False
                    stem = parts[0]
                    sample = TarSample(stem, {parts[1]: member})
                else:
                    self._put(sample, parts[1], member)
        except TarDamage as error:
            cut = split_name(error.name)
            if stem is None:
                error.lost = self._begin
            elif cut is not None and cut[0] != stem:
                yield sample, False
            else:  # what is lost may be of this sample, too
                error.lost = next(iter(sample.members.values())).header
            raise
        if stem is not None:
            yield sample, True

    def _put(self, sample: TarSample, extension: str, member: TarMember) -> None:
        other = sample.members.setdefault(extension, member)
        if other is not member:
            raise self._data.unsupported(
                f"members {shown(other.name)} (at {other.header}) and {shown(member.name)} are one field of one sample",
                member.header,
                hint="write the tar with one of them",
            )
        if len(sample.members) > MOST_FIELDS:
            raise too_many_fields(self._data, member)

    def _members(self, members: Iterable[TarMember], strays: Strays) -> Iterator[TarMember]:
        """Members that are data by their names; the others are counted."""
        for member in self._linked(members):
            stray = find_stray(member.name)
            if stray is None:
                yield member
            else:
                strays.add(stray)

    def _linked(self, members: Iterable[TarMember]) -> Iterator[TarMember]:
        """Members, and for each hard link the bytes of the one in front of it that it points to."""
        known: dict[str, TarMember] | None = None  # by name, from the first link on
        for found in members:
            member = found
            if member.link is not None:
                if known is None:
                    known = self._names_before(member.header)
                member = self._resolved(member, known.get(posixpath.normpath(member.link)))
            if known is not None:
                known[posixpath.normpath(member.name)] = member
            yield member

    def _resolved(self, link: TarMember, target: TarMember | None) -> TarMember:
        if target is None:
            raise self._data.unsupported(
                f"member {shown(link.name)} is a hard link to {shown(link.link or '')}, which is not in front of it "
                f"in this tar",
                link.header,
                hint="write the tar with --hard-dereference",
            )
        return link._replace(offset=target.offset, size=target.size, start=target.start)

    def _names_before(self, header: int) -> dict[str, TarMember]:
        if header == self._begin:
            return {}
        before = TarMembers(self._data, self._begin, header)
        return {posixpath.normpath(one.name): one for one in before}

    def _meet(self, shape: tuple[str, ...]) -> None:
        """Remember what a sample is made of. Where two samples share no extension, they may be parts of one."""
        assert self._shapes is not None
        alone = any(set(shape).isdisjoint(other) for other in self._shapes)
        self._shapes[shape] = None
        if alone or len(self._shapes) > _MOST_SHAPES:
            self._shapes = None
            self._check_keys()

    def _check_keys(self) -> None:
        """Refuse a tar in which a key comes back with other extensions: its samples would be halves."""
        seen: dict[str, tuple[TarMember, frozenset[str]]] = {}
        try:
            members = self._members(TarMembers(self._data, self._begin, self._end), Strays())
            for sample, _ in self._grouped(members):
                if sample.is_bad:
                    continue
                found = frozenset(sample.members)
                member = next(iter(sample.members.values()))
                first, names = seen.setdefault(sample.stem, (member, found))
                if first is not member and names.isdisjoint(found):
                    raise _interleaved(self._data, first, member)
        except TarDamage:
            return  # whoever reads the samples comes to it, too


def _interleaved(data: ObjectBytes, first: TarMember, second: TarMember) -> FormatError:
    return data.unsupported(
        f"members {shown(first.name)} (at {first.header}) and {shown(second.name)} (at {second.header}) are of one "
        f"sample, and others lie between them",
        second.header,
        hint="read it with the option group=key, which puts members of one key together over the whole tar",
    )


def too_many_fields(data: ObjectBytes, member: TarMember) -> FormatError:
    """The error for a tar whose names are not made of a key, a dot and an extension."""
    return data.unsupported(
        f"members have more than {MOST_FIELDS} different extensions, such as that of {shown(member.name)}: in this "
        f"format a key ends at the first dot of a name",
        member.header,
        hint="write the tar with names that have their first dot in front of the extension",
    )
