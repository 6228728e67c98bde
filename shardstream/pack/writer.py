"""``ss.ShardWriter``: samples from Python, one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from shardstream.errors import DecodeError, DuplicateKeyError, FieldError, ShardStreamError, UsageError
from shardstream.options import takes_flat
from shardstream.pack.encode.images import Damaged, ImageHandling, ImageOptions
from shardstream.pack.execution.isolated import end, finish
from shardstream.pack.options import ShardOptions, check_format, check_meta
from shardstream.pack.output.commits import Committer
from shardstream.pack.output.destination import open_destination
from shardstream.pack.output.growth import append as publish
from shardstream.pack.output.growth import leftovers
from shardstream.pack.output.places import StorageOptions
from shardstream.pack.sources.classes import ClassesArgument, check_classes, names_of, place_of
from shardstream.pack.sources.declared import parse_type, stored_types
from shardstream.pack.sources.duplicates import SeenHashes, key_hash
from shardstream.pack.sources.values import KEY, encode, is_picture_name
from shardstream.shards.field_names import check_field_name
from shardstream.shards.fields import Encoded, FieldType
from shardstream.shards.framings import Format, framing_of
from shardstream.shards.growing import check_grows
from shardstream.shards.index import check_key
from shardstream.shards.manifest import Manifest
from shardstream.shards.writing import OneShard, ShardSummary
from shardstream.sizes import parse_size, plural
from shardstream.storage import ObjectWriter, PathOrUrl
from shardstream.storage.base.location import flat_transport


class ShardWriter:
    """Writes a data set, sample by sample, in the order given.

    A context manager. Leaving the block normally makes the data set complete; leaving it by an exception leaves none,
    and an old one untouched. If the process is killed, there is no ``dataset.json`` and no file that looks like a whole
    shard but is not one.

    Keys are unique: within a shard this is checked at once, against earlier shards whenever a shard is full, with eight
    bytes of memory a sample.

    Args:
        dest: Folder of the data set, made where missing, URL (``s3://bucket/name``...) or store. Shards are sent while
            they are made: a full one is completed in the background while the next one is written.
        format: ``"tar"`` or ``"record"``. Default: ``"tar"``, or that of the data set that is appended to.
        shard_size: A shard that has reached this size is finished: ``"256MB"``, ``"256MiB"`` or a number of bytes.
        fields: Types of fields by name, as ``{"cls": "int32", "emb": "array:float32:768"}``; ``"array:uint16"`` is
            for arrays of any shape, ``"values:uint16"`` for rows of any length. Lists of numbers become arrays, and
            integers of another dtype the declared one, where each is held exactly; other values are a FieldError.
            Fields that are not named take the type of their first value. A sample need not have all fields.
        classes: Names of the labels, label i being ``classes[i]``: a list, or where it is, as of `pack`. Where a data
            set is appended to, they may go on behind those it has.
        meta: Anything to keep with the data set; JSON. Where a data set is appended to, entries are added or replaced.
        overwrite: Replace another data set in ``dest``, once this one is complete.
        append: Add to the data set in ``dest``, if there is one: the samples become new shards, the old ones stay
            as they are, and it becomes its next version once all is written. Keys are not compared with those of
            samples that were there before, which would take reading all indexes. One writer at a time.
        damaged: What becomes of image files that are damaged: ``"reject"`` refuses their samples, by an error of
            `write`; ``"keep"`` stores any bytes under an image's name.
        images: How damaged images are found: ``ImageOptions(check="decode")``. Default: by their headers.
        shards: What shards hold, as of `pack`: compression, checksums, and a table of the keys, which a dataset that is
            appended to gets if it had one.
        storage: Credentials and settings of the store.

    Raises:
        UsageError: An argument that is not allowed.
        DestinationError: ``dest`` holds a data set already, or files in the way that are not ours.

    Example:
        >>> with ShardWriter("out/") as writer:
        ...     writer.write({"__key__": "n01440764/10026", "jpg": jpeg_bytes, "cls": 0})
    """

    @takes_flat(flat_transport("dest"), images=ImageOptions, shards=ShardOptions, storage=StorageOptions)
    def __init__(
        self,
        dest: PathOrUrl,
        *,
        format: Format | None = None,
        shard_size: int | str = "256MB",
        fields: Mapping[str, str] | None = None,
        classes: ClassesArgument | None = None,
        meta: Mapping[str, Any] | None = None,
        overwrite: bool = False,
        append: bool = False,
        damaged: Damaged = "reject",
        images: ImageOptions | None = None,
        shards: ShardOptions | None = None,
        storage: StorageOptions | None = None,
    ) -> None:
        shards = shards or ShardOptions()
        if append and overwrite:
            raise UsageError("append and overwrite exclude each other", hint="leave one of them out")
        if format is not None or not append:
            check_format(format or "tar", shards)
        check_classes(classes)
        check_meta(meta or {})
        self._images = ImageHandling.as_found(damaged, "header" if images is None else images.check)
        self._limit = parse_size(shard_size, name="shard_size")
        self._meta = dict(meta or {})
        self._shards = shards
        declared = {name: parse_type(kind) for name, kind in (fields or {}).items()}
        for name in declared:
            check_field_name(name)
        self._fields: dict[str, FieldType] = {}
        for name, kind in declared.items():
            self._declare(name, kind)
        read, place = (storage or StorageOptions()).locate(place_of(classes), dest)
        self._classes = names_of(classes, read)
        self._destination = open_destination(place, shards, append=append)
        self._committer = Committer()
        if self._destination.old is not None and not overwrite and not append:
            raise self._destination.refuse()
        old = self._destination.old if append else None
        self._grows = old is not None
        self._format: Format = format or "tar"
        if old is not None:
            self._format = format or framing_of(old.framing).name  # type: ignore[assignment] # a framing's is a format
            check_format(self._format, shards)
            check_grows(old, framing=self._format, fields=stored_types(declared), classes=self._classes)
            self._shards = shards.inheriting(old.codecs)
            for name, kind in old.fields.items():
                self._declare(name, declared.get(name, kind))  # which are equal, but may be bytes in place of images
        suffix = framing_of(self._format).suffix
        # Appended shards always have a number: none that is there begins so, and only they are listed for `leftovers`.
        self._pattern = self._destination.pattern("shard", suffix, 0 if old is None else old.version)
        self._left = () if old is None else leftovers(self._destination, self._pattern)
        self._out: ObjectWriter | None = None
        self._shard: OneShard | None = None
        self._keys: dict[str, int] = {}  # of the open shard
        self._seen = SeenHashes()
        self._summaries: list[ShardSummary] = []
        self._open = False
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        end()
        if error is not None:
            self._discard()
            return
        try:
            self._complete()
        except BaseException:
            self._discard()
            raise

    def __repr__(self) -> str:
        state = "open" if self._open else "not open"
        return (
            f"ShardWriter({self._destination.store.url!r}: {self._format}, {plural(self.samples, 'sample')}, {state})"
        )

    @property
    def samples(self) -> int:
        """Samples written so far."""
        return sum(one.samples for one in self._summaries) + len(self._keys)

    def write(self, sample: Mapping[str, Any]) -> None:
        """Append a sample.

        Args:
            sample: Its key under ``"__key__"``, and its fields: bytes (an encoded file, by the field's name), str, int,
                float, bool, dict, list, numpy arrays, torch tensors. Arrays uint8 (H, W) or (H, W, 3) and Pillow
                images for ``jpg``, ``png`` and ``webp`` are encoded. ``None`` means that the sample lacks the field.

        Raises:
            UsageError: Called outside of the ``with`` block, or a key that cannot be one. Nothing was written.
            FieldError: A value that does not fit its field's type. Nothing was written.
            DecodeError: An image file that is damaged, or is no image, unless ``damaged="keep"``. Nothing was written,
                and the next sample may be.
            DuplicateKeyError: The key was written before.
            StorageError: The destination cannot be written; the data set cannot be completed any more.
        """
        if not self._open:
            raise UsageError(
                "samples are written inside of the `with` block", hint="with ss.ShardWriter(...) as w: w.write(...)"
            )
        self._check_failure()
        key = check_key(sample.get(KEY))
        if key in self._keys:
            raise self._duplicate(key, self._pattern.format(len(self._summaries)), self._keys[key], len(self._keys))
        encoded = {
            name: self._encode(name, value, key) for name, value in sample.items() if name != KEY and value is not None
        }
        try:
            self._append(key, encoded)
        except UsageError:  # refused before anything was written
            raise
        except BaseException as error:
            self._failure = error
            raise

    def _encode(self, name: str, value: object, key: str) -> tuple[FieldType, Encoded]:
        try:
            kind = self._fields.get(name)
            encoded = encode(name, value, kind)
            if encoded[0].is_image and isinstance(value, bytes | bytearray | memoryview):  # pixels make whole files
                finish([self._images.prepare(bytes(value))], self._images.decoding)
            if kind is None and not (encoded[0].name == "bytes" and is_picture_name(name)):  # which go by content, each
                self._declare(name, encoded[0])
        except DecodeError as error:
            hint = "leave the sample out, or store such files as they are: ShardWriter(..., damaged='keep')"
            raise DecodeError(error.what, hint=hint, **error.place).at(key=key, field=name) from error.__cause__
        except ShardStreamError as error:
            raise error.at(key=key, field=name) from error.__cause__
        return encoded

    def _declare(self, name: str, kind: FieldType) -> None:
        if name in self._shards.compressed and kind.kind != "payload":
            raise FieldError(f"a field of {kind.name} cannot be compressed", field=name, hint="leave it out of `zstd`")
        self._fields[name] = kind

    def _append(self, key: str, encoded: dict[str, tuple[FieldType, Encoded]]) -> None:
        if self._shard is None:
            self._out = self._destination.store.create(self._pattern.format(len(self._summaries)))
            self._shard = self._shards.begin(self._format, self._out)
        self._shard.write(key, encoded)
        self._keys[key] = len(self._keys)
        if self._shard.size >= self._limit:
            self._finish_shard()

    def _finish_shard(self) -> None:
        assert self._out is not None
        assert self._shard is not None
        self._check_earlier_shards()
        summary = self._shard.finish()
        self._committer.wait()
        self._committer.begin(self._out, self._pattern.format(len(self._summaries)))
        self._summaries.append(summary)
        self._shard = self._out = None
        self._keys = {}

    def _check_earlier_shards(self) -> None:
        suspects = self._seen.add(key_hash(key.encode()) for key in self._keys)
        if not suspects:
            return
        self._committer.wait()
        framing = framing_of(self._format)
        for number in range(len(self._summaries)):
            name = self._pattern.format(number)
            for i, key in enumerate(framing.scan(self._destination.store, name).keys):
                if key in self._keys:
                    raise self._duplicate(key, name, i, self._keys[key])

    def _duplicate(self, key: str, shard: str, first: int, second: int) -> DuplicateKeyError:
        now = self._pattern.format(len(self._summaries))
        return DuplicateKeyError(
            f"sample {first} of {shard} has the same key",
            shard=now,
            sample=second,
            key=key,
            hint="keys are unique in a data set: add what tells the samples apart",
        )

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise ShardStreamError(
                "an earlier sample could not be written, so the data set cannot be completed",
                url=self._destination.store.url,
                hint="leave the block by the first exception",
            ) from self._failure

    def _complete(self) -> None:
        self._check_failure()
        if self._shard is not None:
            self._finish_shard()
        self._committer.wait()
        if not self._summaries:
            raise UsageError(
                "no sample was written",
                url=self._destination.store.url,
                hint="call write() once or more in the with block",
            )
        manifest = Manifest.of(
            self._summaries,
            self._pattern,
            framing=self._format,
            zstd=self._shards.compressed,
            classes=self._classes,
            meta=self._meta,
        )
        if self._grows:
            publish(self._destination, manifest, self._left)
        else:
            self._destination.commit(manifest)

    def _discard(self) -> None:
        if self._shard is not None:
            self._shard.close()
        if self._out is not None:
            self._out.discard()
        self._committer.abandon()
        self._destination.discard(self._pattern)
