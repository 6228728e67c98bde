"""What the tests of credentials share."""

from __future__ import annotations

import os

import pytest

from shardstream.storage import locate
from shardstream.storage.clients.obstore_client import settings_of

HIDDEN = "geheim0815geheim"
HIDDEN64 = "Z2VoZWltMDgxNWdlaGVpbQ=="


@pytest.fixture
def bare_environment(monkeypatch, tmp_path) -> None:
    """Nothing of the machine's own: neither variables nor files."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "S3_", "STORAGE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def settings(url, options=None, **environment):
    return settings_of(locate(url, storage_options=options), {"HOME": os.environ["HOME"], **environment})


def key_of(found) -> str | None:
    """The access key, account key, SAS token or token that was chosen."""
    if found.provider is None:
        return None
    credential = found.provider()
    return next(
        credential[name] for name in ("access_key_id", "access_key", "sas_token", "token") if name in credential
    )
