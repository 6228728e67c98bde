from __future__ import annotations

import pytest

from shardstream.errors import UsageError
from shardstream.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("256MB", 256_000_000), ("256MiB", 256 << 20), ("1.5GB", 1_500_000_000), ("64k", 64_000), ("7", 7), (12, 12)),
        *(("1 tib", 1 << 40), ("10B", 10), (" 2 kb ", 2000)),
    ],
)
def test_sizes_as_people_write_them(text: int | str, size: int) -> None:
    assert parse_size(text, name="shard_size") == size


@pytest.mark.parametrize("bad", ["", "MB", "-1MB", "1PB", "1 MB MB", "0MB", 0, -5, True, 1.5, None, "1e6", "256 mebi"])
def test_anything_else_names_the_argument_and_an_example(bad: object) -> None:
    with pytest.raises(UsageError, match="shard_size") as caught:
        parse_size(bad, name="shard_size")  # type: ignore[arg-type]
    assert "256MB" in str(caught.value)
