"""A place that data lies in, with all it takes to get there, and nothing of that to be seen."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeGuard

from shardstream.errors import UsageError
from shardstream.options import Rewrite, takes_flat
from shardstream.storage.base.address import PREFIX, Address, parse
from shardstream.storage.base.policy import RetryPolicy
from shardstream.storage.base.store import Store
from shardstream.storage.base.wrapper import FolderStore

_PATIENCE = "patience"  # the one option that is ours
# reqwest, below obstore, keeps these back when a redirect leads to another host.
_STAYING = frozenset(("authorization", "cookie", "proxy-authorization"))
Transport: TypeAlias = Literal["auto", "fsspec"]
"""The library that speaks to a store: with ``auto``, obstore if it can, else fsspec, as for headers that only the
user's own web server may get. A URL says so by its prefix."""


@dataclass(frozen=True, slots=True)
class Access:
    """How a store is reached: options as the user gave them, the transport, and what the URL held.

    Its repr shows the names of options only, for their values are keys and tokens. It is pickled into worker processes,
    and only there: nothing of it is written to an index or a state.

    Attributes:
        options: ``storage_options``.
        transport: See `Transport`.
        secret: User information and query of the URL, see ``address``.
        same_host: Whether a web server that redirects to another host is refused. Only fsspec can be told so.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    transport: Transport = "auto"
    secret: str = ""
    same_host: bool = False

    @property
    def library_options(self) -> dict[str, Any]:
        """Those that are for the library that speaks to the store."""
        return {name: value for name, value in self.options.items() if name != _PATIENCE}

    @property
    def headers_that_travel(self) -> list[str]:
        """Headers of web requests that obstore would send on to another host; it has no option to keep them back."""
        options = {name.lower(): value for name, value in self.options.items()}
        client = options.get("client_options")
        nested = client.get("default_headers") if isinstance(client, Mapping) else None
        given = options.get("headers"), options.get("default_headers"), nested
        return [str(name) for some in given for name in some or () if str(name).lower() not in _STAYING]

    @property
    def policy(self) -> RetryPolicy:
        """When requests are made again, and when they are given up."""
        return RetryPolicy.of(self.options.get(_PATIENCE))

    def __repr__(self) -> str:
        held = ", with what the URL held" if self.secret else ""
        return f"Access(options: {', '.join(sorted(self.options)) or 'none'}; transport {self.transport}{held})"

    def __hash__(self) -> int:
        return hash((self.transport, self.secret, frozenset(self.options)))


@dataclass(frozen=True, slots=True)
class Location:
    """A URL or local path that was looked at, and how it is reached. ``str()`` of it is the URL, without secrets.

    Attributes:
        url: As the user wrote it, without secrets, a slash at its end, and ``fsspec+``; an absolute path for local
            folders.
        access: How it is reached; empty for local folders.
        store: The store itself, where an object was given in place of a URL.
    """

    url: str
    access: Access = field(default_factory=Access)
    store: Store | None = None

    def __str__(self) -> str:
        return self.url

    @property
    def address(self) -> Address:
        """The URL, taken apart; of a store that was given, only what it is called."""
        if self.store is not None:
            return Address("given", self.url, "", "", "")
        return parse(self.url, self.access.secret)

    @property
    def local(self) -> bool:
        """Whether it is a folder of this machine."""
        return self.address.kind == "local"

    @property
    def transport(self) -> Literal["local", "obstore", "fsspec"]:
        """The library that speaks to this store."""
        kind, access = self.address.kind, self.access
        if kind == "local":
            return "local"
        if kind == "http" and (access.same_host or (access.transport == "auto" and access.headers_that_travel)):
            return "fsspec"
        return "fsspec" if kind == "fsspec" or access.transport == "fsspec" else "obstore"

    def join(self, name: str) -> Location:
        """The place ``name`` below this one, reached in the same way."""
        if self.store is not None:
            return locate(FolderStore(self.store, name))
        slash = "" if self.url.endswith("/") else "/"
        return Location(f"{self.url}{slash}{name.strip('/')}", self.access)

    def through(self, transport: Transport) -> Location:
        """The same place by fsspec, if that is what ``transport`` says."""
        if self.local or transport == "auto":
            return self
        return replace(self, access=replace(self.access, transport=transport))

    def __reduce__(self) -> tuple[Callable[..., Location], tuple[object, ...]]:
        return location_of, (self.url, self.access, None if self.store is None else pickled_store(self.store))

    def parent(self) -> Location:
        """The place that holds this one; its name there is the last part of the URL.

        Raises:
            UsageError: This is a whole bucket, or a host.
        """
        if self.store is not None:
            raise UsageError("a store was given, where the URL of one object is needed", url=self.url)
        folder, slash, _ = self.url.rpartition("/")
        if self.local:
            return Location(folder or "/")
        if not slash or not self.address.prefix or folder.endswith("/"):
            raise UsageError("the URL names no object", url=self.url)
        return Location(folder, self.access)


PathOrUrl: TypeAlias = str | os.PathLike[str] | Store | Location
"""What names a place: a path, a URL, a store that was made already, or a `Location`."""


def is_place(value: object) -> TypeGuard[PathOrUrl]:
    """Whether something names a place, and is not, say, a list of names."""
    return isinstance(value, str | os.PathLike | Store | Location)


def pickled_store(store: Store) -> bytes:
    """A store for another process; UsageError where it cannot be pickled."""
    try:
        return pickle.dumps(store)
    except Exception as error:
        raise UsageError(
            f"the store ({type(store).__name__}) cannot be pickled, so that other processes cannot use it: {error}",
            url=store.url,
            hint="use it in one process (num_workers=0, workers=0) or with forked workers, or let its class be found "
            "by name and its __reduce__ leave out what belongs to one process",
        ) from error


def location_of(url: str, access: Access, store: bytes | None) -> Location:
    """A location whose store, if it was given as one, comes from `pickled_store`."""
    return Location(url, access, None if store is None else pickle.loads(store))  # noqa: S301 - what we pickled


_ALONE = f"leave transport= out; before a URL, {PREFIX} asks for fsspec: {PREFIX}s3://bucket/path"


def flat_transport(*places: str) -> Mapping[str, Rewrite]:
    """Rewrite the old argument `transport` as a prefix of the URLs in these arguments."""

    def put(given: dict[str, Any], value: Any) -> str:
        for name in places:
            if name in given:
                given[name] = with_transport(given[name], value)
        return f'"{PREFIX}..." URLs' if value == "fsspec" else "no transport="

    return {"transport": put}


def with_transport(place: Any, transport: str) -> Any:
    """A place, or a list of places, that this library speaks to; what is no URL as it is.

    Args:
        place: As users write it.
        transport: ``"auto"``, ``"obstore"`` or ``"fsspec"``.

    Raises:
        UsageError: The library doesn't speak to it, or has no part in it.

        >>> with_transport("s3://bucket/set", "fsspec")
        'fsspec+s3://bucket/set'
    """
    if transport not in ("auto", "obstore", "fsspec"):
        raise UsageError(f"transport must be one of auto, obstore, fsspec, got {transport!r}", hint=_ALONE)
    if isinstance(place, list | tuple):
        return [with_transport(one, transport) for one in place]
    if transport == "auto" or not is_place(place):
        return place
    if isinstance(place, Store):
        what = f"transport is for URLs, and a store was given ({type(place).__name__})"
        raise UsageError(what, url=place.url, hint=_ALONE)
    if transport == "obstore":
        address = locate(place).address
        if address.kind == "fsspec":
            raise UsageError(f"obstore does not speak {address.scheme}://", url=address.url, hint=_ALONE)
        return place
    if isinstance(place, Location):
        return place.through("fsspec")
    text = os.fspath(place)
    if text.lower().startswith(PREFIX):
        raise UsageError(f"transport= and a URL with {PREFIX}", url=parse(text).url, hint=_ALONE)
    return f"{PREFIX}{text}" if "://" in text else text


@takes_flat(flat_transport("place"))
def locate(
    place: PathOrUrl,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> Location:
    """Look at a URL or path, without going there.

    Args:
        place: URL, local path, a store, or a `Location`, which is returned as it is unless options are given with it.
        storage_options: Credentials and settings by name, see ``docs/storage.md``. Default: the environment's.

    Raises:
        UsageError: No URL that could be meant, options beside a store.

        >>> str(locate("https://acme.blob.core.windows.net/data/one/?sv=2024&sig=hidden"))
        'https://acme.blob.core.windows.net/data/one'
    """
    if isinstance(place, Store):
        place = Location(place.url, store=place)
    if not isinstance(place, Location):
        address = parse(place)
        transport: Transport = "fsspec" if address.by_fsspec else "auto"
    else:
        if place.store is not None and storage_options:
            raise UsageError(
                f"storage_options are for URLs, and a store was given ({type(place.store).__name__})",
                url=place.url,
                hint="give them to the store when it is made",
            )
        if place.store is not None or storage_options is None:
            return place
        address, transport = place.address, place.access.transport
    if address.kind == "local":
        return Location(address.url)
    return Location(address.url, Access(dict(storage_options or {}), transport, address.secret))
