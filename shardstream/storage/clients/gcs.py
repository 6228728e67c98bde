"""Where Google Cloud Storage's credentials come from: obstore looks where Google's own tools do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardstream.storage.base.address import Address
from shardstream.storage.clients.names import GCS
from shardstream.storage.clients.options import StoreSettings, allow_http, bucket_settings, first_set, truth

# What holds credentials: options, and variables.
_GIVEN = ("service_account", "service_account_key", "application_credentials")
_VARIABLES = (
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
)


def gcs_settings(address: Address, options: Mapping[str, Any], environment: Mapping[str, str]) -> StoreSettings:
    """What a ``GCSStore`` for this address is made of.

    ``token`` is gcsfs's: "anon", "google_default" and "cloud" by name, else the path of a file of credentials.

    Raises:
        UsageError: Options that contradict each other.
    """
    settings = bucket_settings("GCSStore", address, options, GCS)
    config = settings.config
    token = config.pop("application_credentials", None)
    if token == "anon":  # noqa: S105 - the name of a way, not a password
        config["skip_signature"] = True
    elif isinstance(token, str | os.PathLike) and token not in ("google_default", "cloud"):
        config["application_credentials"] = os.fspath(token)
    config.pop("project", None)  # gcsfs wants it; reading and writing objects does not
    endpoint = config.get("base_url") or first_set(environment, "GOOGLE_BASE_URL", "STORAGE_EMULATOR_HOST")
    if endpoint:
        endpoint = str(endpoint) if "://" in str(endpoint) else f"http://{endpoint}"
        config["base_url"] = endpoint.rstrip("/")
        allow_http(endpoint, settings.client)
        if environment.get("STORAGE_EMULATOR_HOST") and "skip_signature" not in config:
            config["skip_signature"] = True  # as Google's own clients do with an emulator
    if "skip_signature" in config:
        config["skip_signature"] = truth("anon", config["skip_signature"])
    settings.provider = config.pop("credential_provider", None)
    settings.hint = (
        "set GOOGLE_APPLICATION_CREDENTIALS, run `gcloud auth application-default login`, or for a public bucket "
        "give storage_options={'anon': True}"
    )
    settings.credentials = _who(settings, environment)
    return settings


def gcsfs_arguments(options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of a ``GCSFileSystem``."""
    arguments = GCS.for_fsspec(options)
    if truth("anon", arguments.pop("anon", False)):
        arguments["token"] = "anon"  # noqa: S105 - the name of a way, not a password
    elif environment.get("STORAGE_EMULATOR_HOST"):
        arguments.setdefault("token", "anon")
    return arguments


def _who(settings: StoreSettings, environment: Mapping[str, str]) -> str:
    """Who gives the credentials, for people, in the order in which obstore looks."""
    if settings.config.get("skip_signature"):
        return "none, as `anon` or an emulator says"
    if settings.provider:
        return "credential_provider of storage_options"
    given = next((name for name in _GIVEN if name in settings.config), None)
    if given:
        return f"{given} of storage_options"
    variable = next((name for name in _VARIABLES if environment.get(name)), None)
    if variable:
        return f"{variable} of the environment"
    login = Path(environment.get("HOME") or Path.home()) / ".config/gcloud/application_default_credentials.json"
    return "the login of gcloud" if login.exists() else "the service account of this machine, if it has one"
