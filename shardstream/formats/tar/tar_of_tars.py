"""Tar of tars: a tar file with a tar of samples for each class, as ImageNet's training images come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from shardstream.errors import UnsupportedError
from shardstream.formats.contract import ObjectListing, Recognized, SourceFormat, SourceObject
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import PIECE, ScannedRows, usable_key
from shardstream.formats.tar.headers import TarDamage, TarMember, TarMembers, shown
from shardstream.formats.tar.names import TAR, found_tars
from shardstream.formats.tar.rows import TarRows, damage_of
from shardstream.formats.tar.samples import TarSamples
from shardstream.names.strays import find_stray
from shardstream.storage.base.store import ObjectMeta

_WINDOW = 4096  # between inner tars, of which all but the header is left out
_MOST_CLASSES = 1_000_000


class TarOfTars(SourceFormat):
    """Samples are members of the inner tars, addressed in the outer one; the class is the name of the inner tar."""

    name: ClassVar[str] = "tar-of-tars"
    title: ClassVar[str] = "tar of tars"
    window: ClassVar[int] = 1 << 20

    def recognize(self, listing: ObjectListing, options: Mapping[str, str]) -> Recognized | None:
        found = found_tars(listing)
        if found is None or not found.nested:
            return None
        inner = {one.path: _inner_tars(listing, one) for one in found.tars}
        classes = sorted({name for tars in inner.values() for name, _ in tars})
        labels = {name: label for label, name in enumerate(classes)}
        objects = []
        for one in found.tars:
            places = [[name, labels[name], member.offset, member.size] for name, member in inner[one.path]]
            objects.append(SourceObject(one.path, one.size, {"tars": places}))
        return Recognized(tuple(objects), tuple(classes), found.notes)

    def scan(self, data: ObjectBytes, about: Mapping[str, Any]) -> Iterator[ScannedRows]:
        rows = TarRows(data)
        found = False
        for name, label, offset, size in about["tars"]:
            if offset < 0 or size < 0 or offset + size > data.size:
                raise data.damaged(f"the tar of class {name!r} is not inside of the object, which has changed", 0)
            try:
                for sample in TarSamples(data, offset, offset + size):
                    if len(rows) == PIECE:
                        yield rows.take()
                    rows.add(sample._replace(stem=f"{name}/{sample.stem.removeprefix('./')}"), label)
                    found = True
            except TarDamage as error:
                damage = damage_of(data, error, offset + size)
                if not found:
                    raise damage from None
                yield rows.take(damage)
                return
        if len(rows):
            yield rows.take()


def _inner_tars(listing: ObjectListing, one: ObjectMeta) -> list[tuple[str, TarMember]]:
    """Class and place of each inner tar, in order. All have to be there: a class that is missing renumbers others."""
    data = ObjectBytes(listing.store, one.path, one.size, window=_WINDOW)
    found: dict[str, TarMember] = {}
    tar = TarMembers(data)
    try:
        for member in tar:
            if find_stray(member.name) is not None:
                continue
            name = _class_of(data, member)
            if name in found or len(found) == _MOST_CLASSES:
                raise data.damaged(f"there are two tars of class {name!r}, or too many", member.header)
            found[name] = member
        if not tar.marked:
            raise TarDamage("the tar has no end mark, as one that is cut off", data.size)
    except TarDamage as error:
        raise data.damaged(f"{error.what}, and without all inner tars classes have no numbers", error.offset) from None
    return list(found.items())


def _class_of(data: ObjectBytes, member: TarMember) -> str:
    name = usable_key(member.name.rpartition("/")[2])
    if member.link is not None or not name.lower().endswith(TAR) or len(name) == len(TAR):
        raise UnsupportedError(
            f"member {shown(member.name)} is not a tar file, but others beside it are",
            url=data.url,
            offset=member.header,
            hint="write a tar that holds tar files of classes, and nothing else",
        )
    return name[: -len(TAR)]
