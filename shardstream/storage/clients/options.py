"""``storage_options`` as obstore takes them."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shardstream.errors import UsageError
from shardstream.storage.base.address import Address
from shardstream.storage.base.policy import seconds
from shardstream.storage.clients.names import OptionNames

READ_TIMEOUT = 15.0
"""Seconds without a byte after which a read is taken for dead. Stores answer within one; Azure's are known to go silent
without an error, and a longer wait only makes the batch wait. Less would cut off requests that a busy store queues."""
CONNECT_TIMEOUT = 5.0
"""Seconds for a connection to be made, as every library of this kind has it."""

# Options of obstore's HTTP client.
_CLIENT = {
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "default_headers",
    "http1_only",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "randomize_addresses",
    "read_timeout",
    "root_certificate",
    "timeout",
    "user_agent",
}
_DURATIONS = ("connect_timeout", "read_timeout", "timeout", "pool_idle_timeout")

Provider = Callable[[], Any]


@dataclass(slots=True)
class StoreSettings:
    """What one of obstore's stores is made of. Holds secrets: never shown.

    Attributes:
        kind: Name of the class in ``obstore.store``.
        place: Bucket, container or URL, its first argument.
        prefix: Path in the bucket.
        config: Options of the store.
        client: Options of its HTTP client.
        provider: Gives credentials when asked.
        detect_region: Whether the bucket may lie in another region than the one that is set.
        hint: What to do when the store refuses.
        credentials: Who gives the credentials, for people; never what they are.
        ends: When the credential that was given ends, where it says so.
        retry: obstore's ``retry_config`` for writing; reads are retried by ``transfer``.
    """

    kind: str
    place: str = field(repr=False)
    prefix: str = ""
    config: dict[str, Any] = field(default_factory=dict, repr=False)
    client: dict[str, Any] = field(default_factory=dict, repr=False)
    provider: Provider | None = field(default=None, repr=False)
    detect_region: bool = False
    hint: str = ""
    credentials: str = "none"
    ends: datetime.datetime | None = None
    retry: dict[str, Any] | None = None

    @property
    def renewable(self) -> bool:
        """Whether making the settings anew can bring other credentials: those that were given, or none, stay."""
        stays = isinstance(self.provider, Fixed) or self.config.get("skip_signature")
        return not stays and self.kind != "HTTPStore"

    def advice(self) -> str:
        """What to do when the store refuses, as things are now."""
        if self.ends is not None and self.ends < datetime.datetime.now(datetime.UTC):
            return f"it ended at {self.ends:%Y-%m-%d %H:%M:%S} UTC: get a new one ({self.hint})"
        return self.hint


def bucket_settings(kind: str, address: Address, options: Mapping[str, Any], names: OptionNames) -> StoreSettings:
    """What the settings of every bucket begin with: its place, and all options under obstore's names."""
    config = names.for_obstore(options)
    client, retry = client_options(config), config.pop("retry_config", None)
    return StoreSettings(kind, address.bucket, address.prefix, config, client, retry=retry)


def client_options(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options of the HTTP client out of ``options``; times in seconds or as obstore takes them ("30s")."""
    given = options.pop("client_options", {})
    if not isinstance(given, Mapping):
        raise UsageError("storage_options: client_options must be a dict", hint="client_options={'timeout': '60s'}")
    found = {"connect_timeout": CONNECT_TIMEOUT, "read_timeout": READ_TIMEOUT, **given}
    found |= {name: options.pop(name) for name in sorted(_CLIENT & set(options))}
    for name in _DURATIONS:
        if name in found:
            found[name] = _duration(name, found[name])
    for name in ("allow_http", "allow_invalid_certificates", "http1_only", "http2_only"):
        if name in found:
            found[name] = truth(name, found[name])
    return found


def _duration(name: str, value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return value
    return datetime.timedelta(seconds=seconds(name, value)) if isinstance(value, int | float) else value


def truth(name: str, value: Any) -> bool:
    """A switch, also from a command line or variable."""
    if isinstance(value, str):
        if value.lower() in ("1", "true", "yes", "on"):
            return True
        if value.lower() in ("0", "false", "no", "off", ""):
            return False
        raise UsageError(f"{name} is neither true nor false")
    return bool(value)


def allow_http(endpoint: str | None, client: dict[str, Any]) -> None:
    """Whoever names an http:// endpoint means it."""
    if endpoint and endpoint.lower().startswith("http://"):
        client.setdefault("allow_http", True)


def first_set(environment: Mapping[str, str], *names: str) -> str | None:
    """The value of the first of these variables that is set and not empty; ``None`` if none is."""
    return next((environment[name] for name in names if environment.get(name)), None)


class Fixed:
    """A provider of credentials that stay: given so, they come before any that the environment holds."""

    def __init__(self, credential: dict[str, Any]) -> None:
        self._credential = {**credential, "expires_at": None}

    def __call__(self) -> dict[str, Any]:
        return self._credential
