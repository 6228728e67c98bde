"""The tree of errors."""

from __future__ import annotations

import errno
import os

import pytest

from shardstream import errors
from shardstream.diagnose.whole import TooLarge

CODES = {
    "ShardStreamError": "error",
    "UsageError": "usage",
    "FieldError": "field",
    "DestinationError": "destination",
    "MissingKeyError": "missing-key",
    "BatchError": "batch",
    "RankError": "rank",
    "MissingExtraError": "missing-extra",
    "StorageError": "storage",
    "NotFoundError": "not-found",
    "AccessError": "access",
    "ChangedError": "changed",
    "SourceError": "source",
    "DuplicateKeyError": "duplicate-key",
    "DataError": "data",
    "FormatError": "format",
    "VersionError": "version",
    "ChecksumError": "checksum",
    "DecodeError": "decode",
    "UnsupportedError": "unsupported",
    "PlaceholderError": "placeholder",
    "TransformError": "transform",
    "WorkerError": "worker",
    "TooManyRejectsError": "too-many-rejects",
    "TooManySkipsError": "too-many-skips",
}


def test_codes_stay_what_they_are() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert {kind.__name__: kind.code for kind in kinds if issubclass(kind, errors.ShardStreamError)} == CODES


@pytest.mark.parametrize("base", [errors.UsageError, errors.StorageError])
def test_a_class_derived_elsewhere_has_the_code_of_its_base(base: type[errors.ShardStreamError]) -> None:
    class Mine(base): ...  # type: ignore[misc, valid-type]  # a base that is a variable

    assert Mine.code == base.code
    assert TooLarge.code == "storage"


@pytest.mark.parametrize("name", ["ENOSPC", "EDQUOT", "EROFS", "EMFILE", "EIO", "EACCES"])
def test_what_the_system_refuses_comes_with_what_to_do(name: str) -> None:
    number = getattr(errno, name)
    error = errors.StorageError.of(OSError(number, os.strerror(number)), url="/data/x")
    assert (error.what, error.place) == (os.strerror(number), {"url": "/data/x"})
    assert error.hint


def test_what_the_system_refuses_for_other_reasons_is_told_in_its_words() -> None:
    assert str(errors.StorageError.of(ValueError("embedded null byte"), url="a")) == "embedded null byte [url a]"
