"""What ``storage_options`` are called: by us and obstore, by fsspec's file systems, and elsewhere. The only table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from shardstream.errors import UsageError


class OptionName(NamedTuple):
    """The names of an option.

    Attributes:
        obstore: What obstore calls it, and so do we.
        fsspec: What s3fs, adlfs, or gcsfs calls it, if it has it.
        others: What other libraries, and variables, call it.
    """

    obstore: str
    fsspec: str
    others: tuple[str, ...] = ()


class OptionNames:
    """The options of a kind of store whose name is not the same everywhere.

    Attributes:
        prefix: What may stand before each name.
        table: The names.
    """

    def __init__(self, prefix: str, *table: OptionName) -> None:
        self.prefix, self.table = prefix, table
        self._aliases = {alias: one.obstore for one in table for alias in (one.fsspec, *one.others)}
        self._fsspec = {one.obstore: one.fsspec for one in table}

    def for_obstore(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options under obstore's names, without those that are ``None``; UsageError for two names of one option."""
        found: dict[str, Any] = {}
        for given, value in options.items():
            name = given.lower().removeprefix(self.prefix)
            name = self._aliases.get(name, name)
            if value is None:
                continue
            if name in found:
                raise UsageError(f"storage_options name {name!r} twice", hint=f"drop {given!r} or the other")
            found[name] = value
        return found

    def for_fsspec(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The same under the names of the file system."""
        return {self._fsspec.get(name, name): value for name, value in self.for_obstore(options).items()}


S3 = OptionNames(
    "aws_",
    OptionName("access_key_id", "key"),
    OptionName("secret_access_key", "secret"),
    OptionName("session_token", "token"),
    OptionName("endpoint", "endpoint_url", ("endpoint_url_s3",)),
    OptionName("region", "region_name", ("default_region",)),
    OptionName("skip_signature", "anon", ("anonymous",)),
    OptionName("request_payer", "requester_pays"),
    OptionName("profile", "profile", ("profile_name",)),
)
AZURE = OptionNames(
    "azure_",
    OptionName("account_name", "account_name", ("storage_account_name", "account")),
    OptionName(
        "account_key",
        "account_key",
        ("storage_account_key", "access_key", "master_key", "storage_access_key"),
    ),
    OptionName("sas_token", "sas_token", ("storage_sas_token", "sas_key", "storage_sas_key")),
    OptionName("connection_string", "connection_string", ("storage_connection_string",)),
    OptionName("endpoint", "endpoint", ("account_url", "storage_endpoint", "endpoint_url")),
    OptionName("skip_signature", "anon", ("anonymous",)),
    OptionName("use_emulator", "use_emulator", ("use_development_storage",)),
)
GCS = OptionNames(
    "google_",
    OptionName("skip_signature", "anon", ("anonymous",)),
    OptionName("base_url", "endpoint_url", ("endpoint",)),
    OptionName("application_credentials", "token", ("credentials",)),
    OptionName("service_account", "service_account", ("service_account_path",)),
)
