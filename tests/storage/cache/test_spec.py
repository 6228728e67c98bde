"""What users give as a cache."""

from __future__ import annotations

import pytest

from shardstream import Cache
from shardstream.errors import UsageError


@pytest.mark.parametrize(
    "url", ["s3://bucket/cache", "https://user:secret@host/cache?sig=secret", "ftp://user:secret@host/x"]
)
@pytest.mark.parametrize("name", ["path", "memory"])
def test_a_url_is_refused_without_its_secrets(url: str, name: str) -> None:
    with pytest.raises(UsageError, match="must be a local folder") as caught:
        Cache(**{"path": "/tmp/cache", name: url})
    assert "secret" not in str(caught.value)
