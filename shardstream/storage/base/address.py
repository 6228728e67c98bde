"""What a URL says: which kind of store, where in it, and which part of the text is a secret.

Pure text; nothing is opened or looked up here. A URL is shown (``url``) without user information and without a query,
because those hold passwords, SAS tokens and signatures; what was cut off travels apart as ``secret``. It is shown
without ``fsspec+`` too: whichever library reads it, it is the same place.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from shardstream.errors import StorageError, UsageError

StoreKind: TypeAlias = Literal["local", "s3", "azure", "gcs", "http", "fsspec", "given"]
PREFIX = "fsspec+"
"""Before a URL, has fsspec speak to a store that obstore speaks to by default: ``fsspec+s3://bucket/path``."""

_KINDS: dict[str, StoreKind] = {
    "file": "local",
    "local": "local",
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "az": "azure",
    "azure": "azure",
    "abfs": "azure",
    "abfss": "azure",
    "adl": "azure",
    "wasb": "azure",
    "wasbs": "azure",
    "gs": "gcs",
    "gcs": "gcs",
    "http": "http",
    "https": "http",
}
# Hosts of Azure's storage in its public and national clouds, Fabric, and accounts with a DNS zone of their own.
_AZURE_HOST = re.compile(
    r"(?P<account>[a-z0-9][a-z0-9-]*)(?P<zone>\.z[0-9]+)?\.(?P<service>blob|dfs)"
    r"\.(?P<suffix>core\.windows\.net|core\.chinacloudapi\.cn|core\.usgovcloudapi\.net|core\.cloudapi\.de"
    r"|storage\.azure\.net|fabric\.microsoft\.com)"
)
# What stands before the "@" of these is the name of a repository, not of a user.
_AT_IS_NO_USER = ("github", "gist", "hf")


@dataclass(frozen=True, slots=True)
class Address:
    """A URL, taken apart.

    Attributes:
        kind: Which kind of store; ``given`` for one that no URL names.
        url: What is shown: the text as it was given, without secrets and without a slash at its end.
        scheme: Lower case; ``file`` for a plain path.
        bucket: Bucket or container; the host (and port) of ``http``; empty for local folders and fsspec's protocols.
        prefix: Path in the bucket, without slashes at its ends; an absolute path for local folders; everything after
            ``://`` for fsspec's protocols.
        account: Azure's storage account, where the URL names it.
        endpoint: The ``https`` address of that account, where the URL names its host.
        secret: User information and query, as ``user:password?query``.
        by_fsspec: Whether the URL asks for fsspec, by its prefix.
    """

    kind: StoreKind
    url: str
    scheme: str
    bucket: str
    prefix: str
    account: str = ""
    endpoint: str = ""
    secret: str = field(default="", repr=False)
    by_fsspec: bool = False

    @property
    def user(self) -> str:
        """User information of the URL, percent-encoded as it was."""
        return self.secret.partition("?")[0]

    @property
    def query(self) -> str:
        """Query of the URL, without the question mark."""
        return self.secret.partition("?")[2]

    @property
    def origin(self) -> tuple[str, str, str]:
        """What two URLs of one host or bucket share: the kind of store (or the scheme), account, bucket or host."""
        kind = self.scheme if self.kind in ("http", "fsspec") else self.kind
        return kind, self.account, self.bucket or ("" if self.kind == "local" else self.prefix.partition("/")[0])


def parse(place: str | os.PathLike[str], secret: str = "") -> Address:
    """Take a URL or path apart.

    Args:
        place: URL, or path of a local folder.
        secret: What an earlier `parse` cut off, when ``place`` is its ``url``.

    Raises:
        UsageError: It is not a URL that could be meant.

        >>> parse("abfss://data@acme.dfs.core.windows.net/sets/one/").account
        'acme'
    """
    try:
        text = os.fspath(place)
    except TypeError:
        raise UsageError(
            f"a place is a path or a URL, got {type(place).__name__}",
            hint="samples that lie in memory are packed first: ss.pack(samples, dest), then give dest",
        ) from None
    scheme, colon, rest = text.partition("://")
    if not colon:
        return Address("local", absolute(text), "file", "", absolute(text))
    scheme = scheme.lower()
    if scheme.startswith(PREFIX):
        return replace(parse(text[len(PREFIX) :], secret), by_fsspec=True)
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
        # Also fsspec's chains ("simplecache::s3://..."): caching is ours, and a secret may stand anywhere in them.
        raise UsageError(
            "the URL must name one store",
            url=f"{re.sub(r'[^a-z0-9:+.-]', '', scheme)}://...",
            hint="write scheme://..., such as s3://bucket/path; for a local copy of what is read use cache=",
        )
    kind = _KINDS.get(scheme, "fsspec")
    if kind == "local":
        return _local(scheme, rest)
    # Only what is before the first slash or question mark can hold a user; only what follows "?" is a query.
    base, _, query = rest.partition("?")
    if kind == "http":
        base = base.partition("#")[0]
    netloc, slash, path = base.partition("/")
    user = ""
    if "@" in netloc and kind != "azure" and scheme not in _AT_IS_NO_USER:
        user, _, netloc = netloc.rpartition("@")
    secret = secret or (f"{user}?{query}" if query else user)
    url = f"{scheme}://{netloc}{slash}{path}".rstrip("/")
    if url.endswith(":"):
        url += "//"
    if kind == "azure":
        return _azure(url, scheme, netloc, path, secret)
    if kind == "http":
        found = _AZURE_HOST.fullmatch(netloc.lower())
        if found:
            return _azure(url, scheme, netloc, unquote(path), secret)
        if not netloc:
            raise UsageError("the URL names no host", url=url)
        return Address("http", url, scheme, netloc, path.strip("/"), secret=secret)
    if kind == "fsspec":
        return Address("fsspec", url, scheme, "", f"{netloc}{slash}{path}".rstrip("/"), secret=secret)
    if secret:
        raise UsageError(
            f"a {scheme}:// URL holds neither a user nor a query",
            url=url,
            hint="give credentials by the environment or by storage_options",
        )
    return Address(kind, url, scheme, _named(netloc, "bucket", url), _clean(path, url))


def absolute(path: str | os.PathLike[str]) -> str:
    """A path from the root on.

    Raises:
        StorageError: It is relative, and the working directory is gone.

        >>> absolute("/data/./sets/")
        '/data/sets'
    """
    try:
        return os.path.abspath(os.fspath(path))
    except FileNotFoundError as error:
        raise StorageError(
            f"the working directory is gone, which the relative path {os.fspath(path)!r} starts from",
            hint="change to a directory that exists, such as `cd /`, or give an absolute path",
        ) from error


def _local(scheme: str, rest: str) -> Address:
    parts = urlsplit(f"file://{rest.partition('?')[0]}") if scheme == "file" else None
    if parts is None:
        path = absolute(rest)
    elif parts.netloc in ("", "localhost"):
        path = absolute(unquote(parts.path))
    else:
        shown = f"file://{parts.netloc.rpartition('@')[2]}{parts.path}"
        raise UsageError("a file:// URL names a folder of this machine", url=shown, hint="write file:///path")
    return Address("local", path, "file", "", path)


def _azure(url: str, scheme: str, netloc: str, path: str, secret: str) -> Address:
    """``container@account.host/path``, ``account.host/container/path`` and ``container/path`` (account elsewhere)."""
    container, at, host = netloc.rpartition("@")
    found = _AZURE_HOST.fullmatch(host.lower())
    if at:
        if ":" in container or not container:
            shown = f"{scheme}://{host}/{path}"
            raise UsageError("before the @ stands the container, and nothing else", url=shown)
        if not found:
            hint = (
                "write container@ACCOUNT.dfs.core.windows.net; give another host by storage_options={'endpoint': ...}"
            )
            raise UsageError(f"the host must be one of Azure's storage, got {host!r}", url=url, hint=hint)
    elif found:
        container, _, path = path.partition("/")
    else:
        container = host
    account, endpoint = "", ""
    if found:
        account = found["account"]
        if found["suffix"].startswith("fabric"):
            endpoint = f"https://{host.lower()}"
        else:
            endpoint = f"https://{account}{found['zone'] or ''}.blob.{found['suffix']}"
    _named(container, "container", url)
    return Address("azure", url, scheme, container, _clean(path, url), account, endpoint, secret)


def _named(name: str, what: str, url: str) -> str:
    if not name:
        raise UsageError(
            f"the URL names no {what}", url=url, hint=f"write {url.partition(':')[0]}://{what.upper()}/path"
        )
    return name


def _clean(path: str, url: str) -> str:
    path = path.strip("/")
    if path and any(part in ("", ".", "..") for part in path.split("/")):
        raise UsageError("the path has an empty part, '.' or '..'", url=url)
    return path
