"""``ss.find_rows``: the samples for which a predicate is true, evaluated once."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import pickle
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from torch.utils.data import DataLoader

from shardstream.dataset.joined import samples_of
from shardstream.dataset.selected.row_set import RowSet
from shardstream.dataset.selected.rows import FoundOn, Rows
from shardstream.errors import UsageError, WorkerError
from shardstream.load.filtering.code_digest import digest_of
from shardstream.load.filtering.evaluation import NO, YES, Answers, Evaluation, Predicate, ShardPiece
from shardstream.load.filtering.rows_output import RowsOutput
from shardstream.load.workers import Workers
from shardstream.progress import OnProgress, ProgressEvent, ignore
from shardstream.sizes import plural
from shardstream.storage import PathOrUrl
from shardstream.stream import ShardDataset
from shardstream.stream.base import Stream
from shardstream.stream.ipc.worker_batch import BatchFailure, keep
from shardstream.stream.iteration.content import ContentPart
from shardstream.stream.iteration.settings import Fields, OnError, check_picklable
from shardstream.text import in_one_line
from shardstream.threads import cores
from shardstream.waits import watched

logger = logging.getLogger(__name__)

_PIECE = 16384  # samples a worker is given at once, at most
_PIECE_BYTES = 64 << 20  # of them
_PIECES = 8  # per worker, at least


def find_rows(
    data: PathOrUrl | ShardDataset,
    predicate: Callable[..., Any],
    *,
    fields: Fields = None,
    workers: int | Literal["auto"] = "auto",
    on_error: OnError = "raise",
    out: str | os.PathLike[str] | None = None,
    progress: OnProgress | None = None,
) -> Rows:
    """Find the samples for which a predicate is true, and call it once for each.

    The result is about a bit per sample and is what ``where=`` takes, so batches are full, ``len`` is exact and ranks
    take equal steps. Use it for what stored columns do not say; ``where={"width": (">=", 256)}`` is much faster where
    they do. Nothing is stored unless ``out`` is given: a changed predicate is not noticed, so save rows under a name
    that says what they are. Each process that calls this does all of the work: in a job of several ranks, call it once
    with ``out``, and `Rows.load` the file on the ranks.

    Args:
        data: A dataset by its path or URL, or a `ShardDataset`, of which each sample of the view (``split``, ``where``,
            ``take``) is looked at once, whatever ``weights``, ranks and epochs it has.
        predicate: Called with what a `ShardDataset.map` gets: a dict of ``__key__`` and the fields, after the maps and
            the transform that the dataset has. What it returns is taken as true or false. Random numbers are drawn as
            in a map, by the number of the sample.
        fields: What it gets, as ``fields`` of `ShardDataset`. Default: the fields of the dataset without images; if it
            has maps, all that these get.
        workers: Processes. Default ``"auto"``: one per processor. 0: this process. Under ``fork`` any function will do;
            under ``spawn`` and ``forkserver`` it has to be picklable.
        on_error: ``"raise"`` (default), or ``"skip"`` for damaged samples, which are then neither in the rows nor in
            ``~rows``; one warning counts them.
        out: A file that is written shard by shard, so that a killed run resumes when it is called again. Its head has
            the fingerprint, the fields and a digest of the predicate's code and of what that refers to.
        progress: Called with a `ProgressEvent` of phase ``"find"`` in samples, with ``found`` and ``skipped``.

    Returns:
        The rows.

    Raises:
        UsageError: An argument that cannot work; ``out`` has rows of other data, fields, or another predicate.
        TransformError: The predicate raised; names the sample.
        DataError: A sample is damaged, or the file of ``out`` is.
        StorageError: Data cannot be read, or ``out`` cannot be written.
        WorkerError: A worker died.

    Example:
        >>> rows = ss.find_rows("out/", lambda sample: sample["__key__"].endswith("7"), workers=0)
        >>> len(ss.ShardDataset("out/", where=rows, batch_size=10))
        2
    """
    given: Any = data
    if isinstance(given, Stream | DataLoader) and not isinstance(given, ShardDataset):
        hint = "pass a path, a URL or a ShardDataset; of a Mixture, find the rows of each source"
        raise UsageError(f"find_rows needs a dataset, got a {type(given).__name__}", hint=hint)
    dataset = given if isinstance(given, ShardDataset) else ShardDataset(given)
    part = _part_of(dataset.part, fields, on_error)
    asked: object = predicate
    if not callable(asked):
        hint = 'for example lambda sample: len(sample["txt"]) > 20'
        raise UsageError(f"predicate must be a function of a sample, got {predicate!r}", hint=hint)
    evaluation = Evaluation(part, Predicate(predicate, tuple(part.source.fields)), dataset.seed)
    number = _workers_of(workers, part.source.samples)
    if number and multiprocessing.get_start_method() != "fork":
        _check_travels(part, predicate)
    with ExitStack() as stack:
        output = None
        if out is not None:
            output = stack.enter_context(RowsOutput(out, _head(part, predicate, dataset.seed)))
        search = _Search(evaluation, output, progress or ignore)
        search.run(number)
        return search.rows()


def _part_of(part: ContentPart, fields: Fields, on_error: OnError) -> ContentPart:
    """What the predicate gets of each sample of the view."""
    options, names = replace(part.options, on_error=on_error, max_skips=None), part.plan.names
    source = part.source.unweighted()
    if fields is None and options.transforms:
        return ContentPart.of(source, options)
    if fields is None:
        wanted = [output.name for output in part.plan.outputs if not output.is_image]
    elif isinstance(fields, Mapping | str) or not set(fields) <= set(names):
        return ContentPart.of(source, replace(options, fields=fields, delivered=None))
    else:
        wanted = [name for name in names if name in fields]
    stored = {now: then for then, now in options.delivered or [(name, name) for name in names]}
    return ContentPart.of(source, replace(options, delivered=tuple((stored[name], name) for name in wanted)))


def _workers_of(workers: object, samples: int) -> int:
    if workers == "auto":
        return 0 if multiprocessing.current_process().daemon else min(cores(), samples // 32)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
        raise UsageError(f'workers must be an integer from 0 on, or "auto", got {workers!r}', hint="leave it out")
    return min(workers, samples)


def _check_travels(part: ContentPart, predicate: Any) -> None:
    """Refuse what cannot be sent to workers that do not fork; UsageError."""
    check_picklable(part.options)
    try:
        pickle.dumps(predicate)
    except Exception as error:  # whatever an object of somebody else's raises
        raise UsageError(
            f"the predicate cannot be pickled, which workers under {multiprocessing.get_start_method()} need: {error}",
            hint="define it at the top of a module, or evaluate in this process: workers=0",
        ) from error


def _head(part: ContentPart, predicate: Any, seed: int) -> dict[str, Any]:
    """What a file of ``out=`` begins with."""
    options = part.options
    search = {
        "view": part.source.fingerprint,
        "fields": list(part.plan.names),
        "decoding": digest_of([options.fields, options.delivered, options.reads.backend, seed], what="fields"),
        "predicate": digest_of([*options.transforms, predicate], what="the predicate"),
        "on_error": options.on_error,
    }
    found_on = [FoundOn.of(one) for one in part.source.manifests]
    return {"data": found_on, "shards": part.source.shards, "search": search}


class _Search:
    """A predicate on its way through all samples.

    Args:
        evaluation: Calls it.
        output: Where rows are written, or ``None``.
        progress: Is told how far it has come.
    """

    def __init__(self, evaluation: Evaluation, output: RowsOutput | None, progress: OnProgress) -> None:
        source = evaluation.source
        self._evaluation, self._output, self._progress = evaluation, output, progress
        self._counts = source.counts
        self._samples = np.asarray(samples_of(source.manifests))
        self._found_on = [FoundOn.of(one) for one in source.manifests]
        self._chosen, self._asked = RowSet(self._samples), RowSet(self._samples)
        self._shard = 0 if output is None else len(output.records)  # the first that is not finished
        self._kept = self._done = int(self._counts[: self._shard].sum(dtype=np.int64))
        self._total = source.samples
        self._found = self._skipped = 0
        self._reason = ""
        for shard, record in enumerate(() if output is None else output.records):
            asked = RowSet.full(self._samples[shard : shard + 1]).bits(0)
            self._chosen.bits(shard)[:] = np.frombuffer(record.chosen, np.uint8)
            self._asked.bits(shard)[:] = asked if record.asked is None else np.frombuffer(record.asked, np.uint8)
        self._found = len(self._chosen)

    def run(self, workers: int) -> None:
        """Call the predicate for all samples that are left."""
        mean = max(self._evaluation.source.mean_bytes, 1)
        most = max(1, min(_PIECE, int(_PIECE_BYTES / mean), math.ceil(self._total / (max(workers, 1) * _PIECES))))
        shards = range(self._shard, len(self._counts))
        pieces = (piece for shard in shards for piece in self._evaluation.pieces(shard, most))
        self._tell()
        with closing(_evaluated(self._evaluation, pieces, workers)) as coming:
            for piece, answers in coming:
                self._add(piece, answers)
        self._finish_before(len(self._counts))
        if self._skipped:
            logger.warning(
                "%s of %s cannot be used, and neither in the rows nor in ~rows; the first: %s",
                plural(self._skipped, "sample"),
                in_one_line(self._evaluation.source.url),
                in_one_line(self._reason),
            )

    def _add(self, piece: ShardPiece, answers: Answers) -> None:
        self._chosen.add(piece.shard, answers.rows[answers.answers == YES])
        self._asked.add(piece.shard, answers.rows[answers.answers >= NO])
        self._done += len(answers.rows)
        self._found += int((answers.answers == YES).sum())
        self._skipped += answers.skipped
        self._reason = self._reason or answers.reason
        if piece.last == self._counts[piece.shard]:
            self._finish_before(piece.shard + 1)
        self._tell()

    def _finish_before(self, shard: int) -> None:
        """All shards before this one are finished."""
        if self._output is not None and self._shard < shard:
            rows = Rows(self._found_on, self._samples, self._chosen, self._asked)
            for finished in range(self._shard, shard):
                self._output.add(finished, rows.record(finished))
        self._shard = max(self._shard, shard)

    def _tell(self) -> None:
        detail = {"found": self._found, "skipped": self._skipped, "kept": self._kept}
        self._progress(ProgressEvent("find", self._done, self._total, "samples", detail))

    def rows(self) -> Rows:
        """What was found."""
        whole = len(self._asked) == int(self._samples.sum(dtype=np.int64))
        return Rows(self._found_on, self._samples, self._chosen, None if whole else self._asked)


def _evaluated(
    evaluation: Evaluation, pieces: Iterator[ShardPiece], workers: int
) -> Generator[tuple[ShardPiece, Answers]]:
    """Each piece with its answers, in order."""
    if not workers:
        for piece in pieces:
            answers = evaluation[piece]
            assert isinstance(answers, Answers)
            yield piece, answers
        return
    coming = list[ShardPiece]()

    def given() -> Iterator[ShardPiece]:
        for piece in pieces:
            coming.append(piece)
            yield piece

    loader = DataLoader(evaluation, sampler=_Given(given()), batch_size=None, num_workers=workers, collate_fn=keep)
    crew = Workers(loader)
    try:
        with watched(lambda: f"the predicate in shard {coming[0].shard}" if coming else "workers to begin") as wait:
            for answers in crew:
                wait.news()
                if isinstance(answers, BatchFailure):
                    answers.throw()
                yield coming.pop(0), answers
    except RuntimeError as error:
        if isinstance(error, WorkerError) or "DataLoader worker" not in str(error):
            raise
        raise WorkerError(
            f"a worker died: {error}",
            url=evaluation.source.url,
            hint="killed: look at the machine's memory (dmesg), or pass fewer workers=",
        ) from error
    finally:
        crew.end()


class _Given:
    """A sampler of what an iterator gives."""

    def __init__(self, pieces: Iterator[ShardPiece]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[Any]:
        return self._pieces
