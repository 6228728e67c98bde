"""``migrate``: what a data set of another library is, what packing it would gain, and the code for it."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import Unpack

from shardstream.dataset.opening import Opening, open_dataset, takes_opening
from shardstream.diagnose.info import FieldInfo, info
from shardstream.errors import BatchError, DataError, MissingExtraError, SourceError, StorageError, UsageError
from shardstream.formats.catalog.catalog import Catalogue
from shardstream.formats.migrate.after import after
from shardstream.formats.migrate.before import before
from shardstream.formats.migrate.facts import gather
from shardstream.formats.migrate.gain import Gain, gain
from shardstream.options import SourceOptions
from shardstream.progress import OnProgress
from shardstream.sizes import parse_size
from shardstream.storage import PathOrUrl
from shardstream.threads import cores

_MOST_WORKERS = 8


@dataclass(frozen=True, slots=True)
class Migration:
    """A data set of another library, and the way over.

    Attributes:
        url: Where it lies.
        format: Name of its format, as ``SourceOptions.format`` has it.
        title: What people call the format.
        samples: Samples.
        objects: Files that hold them.
        bytes: Bytes of these; ``None`` where nobody knows before they are read, as of a list of files.
        fields: The fields, by name.
        classes: How many classes there are, if anything says it.
        notes: What was left out or decided, a sentence each.
        gain: What packing a part of it gained; ``None`` where nothing was measured.
        not_measured: Why not.
        library: What its data are read with so far; ``None`` where there is no program that everybody writes.
        before: A program with that library.
        after: A program with this one, which runs as it is.
        pack: The command that packs it.
    """

    url: str
    format: str
    title: str
    samples: int
    objects: int
    bytes: int | None
    fields: tuple[FieldInfo, ...]
    classes: int | None
    notes: tuple[str, ...]
    gain: Gain | None
    not_measured: str
    library: str | None
    before: str | None
    after: str
    pack: str


@takes_opening
def migrate(
    url: PathOrUrl,
    *,
    seconds: float = 30.0,
    disk: int | str = "256MB",
    crop: int = 224,
    batch_size: int = 64,
    workers: int | None = None,
    progress: OnProgress | None = None,
    **opening: Unpack[Opening],
) -> Migration:
    """What it takes to train on a data set of another library with this one.

    Args:
        url: The data set: a folder, a file, or files by braces or a glob.
        seconds: How long to measure, about: a part of it is packed into a temporary folder, and both are read in
            turns. 0 measures nothing.
        disk: How many bytes may be written for it: ``"256MB"`` or a number.
        crop: Side of the random crops that pictures become, in the measurement and in the code.
        batch_size: Samples a batch, there too.
        workers: Worker processes, there too. Default: one a processor, but at most 8.
        progress: Called with a `ProgressEvent` a few times a second.
        **opening: Arguments of `ShardDataset` that say how it is opened.

    Raises:
        UsageError: It is a data set of ours, or an argument that is not allowed.
        NotFoundError: There is no data set.
        DataError: It is damaged, or of a kind that cannot be read.
        StorageError: It cannot be read.

    Example:
        >>> _ = ss.export("out/", "tars/", to="webdataset")
        >>> migrate("tars/", seconds=0).library
        'webdataset'
    """
    for name, value, least in (("seconds", seconds, 0), ("crop", crop, 1), ("batch_size", batch_size, 1)):
        if not least <= value < math.inf:
            raise UsageError(f"{name} must be {least} or more, got {value!r}", hint="leave it out")
    most = parse_size(disk, name="disk")
    dataset = open_dataset(url, **opening)
    manifest = dataset.manifest
    if not isinstance(manifest, Catalogue):
        raise UsageError("this is a data set of ours already", url=manifest.url, hint="shardstream bench URL")
    if not manifest.samples:
        raise UsageError("there are no samples here", url=manifest.url, hint="look at it with shardstream info URL")
    facts = gather(
        url,
        dataset,
        reading=opening.get("reading") or SourceOptions(),
        crop=crop,
        batch_size=min(batch_size, manifest.samples),
        workers=min(_MOST_WORKERS, cores()) if workers is None else workers,
    )
    found: Gain | str = "it was not asked for"
    if seconds:
        try:
            found = gain(url, dataset, facts, opening=opening, seconds=seconds, disk=most, progress=progress)
        except (BatchError, DataError, MissingExtraError, SourceError, StorageError) as error:
            found = str(error)
    theirs = before(facts)
    fields = info(url, **opening).fields
    known = not manifest.reading.format.loose or all(one.mean_bytes is not None for one in fields if one.present)
    return Migration(
        url=manifest.url,
        format=facts.source,
        title=manifest.title,
        samples=manifest.samples,
        objects=manifest.samples if manifest.reading.format.loose else len(facts.names),
        bytes=manifest.bytes if known else None,
        fields=fields,
        classes=facts.classes,
        notes=manifest.told,
        gain=found if isinstance(found, Gain) else None,
        not_measured=found if isinstance(found, str) else "",
        library=theirs.library if theirs else None,
        before=theirs.code if theirs else None,
        after=after(facts),
        pack=_pack(facts.url, facts.reading),
    )


def _pack(url: str, reading: SourceOptions) -> str:
    words = ["shardstream", "pack", url, "DEST"]
    if reading.format:
        words += ["--source-format", reading.format]
    for name, value in (reading.options or {}).items():
        words += ["--format-option", f"{name}={value}"]
    return shlex.join(words)
