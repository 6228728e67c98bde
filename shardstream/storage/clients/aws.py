"""Where S3's credentials, endpoint and region come from, in the order that AWS's own tools look.

Options given by the caller; ``AWS_ACCESS_KEY_ID``; a profile (``AWS_PROFILE``, or the default one of ``~/.aws``) by
botocore, which knows SSO, assumed roles and credential processes; then what obstore finds by itself: web identity
(IRSA), the container's and the machine's role.
"""

from __future__ import annotations

import configparser
import datetime
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from shardstream.errors import AccessError, UsageError
from shardstream.extras import require
from shardstream.storage.base.address import Address
from shardstream.storage.clients.names import S3
from shardstream.storage.clients.options import Fixed, StoreSettings, allow_http, bucket_settings, first_set, truth

_NO_CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give storage_options="
    "{'access_key_id': ..., 'secret_access_key': ...}; for a public bucket storage_options={'anon': True}"
)
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "S3_ENDPOINT_URL")
# What a profile holds when it can give credentials.
_SOURCES = ("aws_access_key_id", "role_arn", "credential_process", "sso_session", "sso_start_url", "login_session")
# Where web identities (IRSA) and containers find their role.
_ROLES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_LIFETIME = datetime.timedelta(minutes=10)


def s3_settings(address: Address, options: Mapping[str, Any], environment: Mapping[str, str]) -> StoreSettings:
    """What an ``S3Store`` for this address is made of.

    Raises:
        UsageError: Options that contradict each other.
        AccessError: The profile does not exist or gives no credentials.
        MissingExtraError: A profile is asked for, and botocore is not installed.
    """
    given = dict(options)
    given |= given.pop("client_kwargs", None) or {}  # where s3fs takes endpoint_url and region_name
    settings = bucket_settings("S3Store", address, given, S3)
    settings.hint = _NO_CREDENTIALS
    config = settings.config
    settings.provider = config.pop("credential_provider", None)
    profile, token, anonymous = (config.pop(name, None) for name in ("profile", "session_token", "skip_signature"))
    if "request_payer" in config and str(config["request_payer"]).lower() != "requester":
        config["request_payer"] = truth("request_payer", config["request_payer"])
    keys = [name for name in ("access_key_id", "secret_access_key") if name in config]
    if len(keys) == 1:
        raise UsageError(f"storage_options hold {keys[0]} alone", hint="give access_key_id and secret_access_key")
    if token and not keys:
        raise UsageError("storage_options hold a session_token without keys", hint="give access_key_id and the rest")

    files: _Profile | None = None
    if anonymous is None and not (keys or settings.provider or profile):
        anonymous = environment.get("AWS_SKIP_SIGNATURE")
    config["skip_signature"] = truth("anon", anonymous)
    if config["skip_signature"]:
        settings.provider = None
        settings.hint = "the bucket is not open to everybody: leave out `anon`, and give credentials"
        settings.credentials = "none, as `anon` says"
    elif settings.provider:
        settings.hint = "look at what the credential_provider gives"
        settings.credentials = "credential_provider of storage_options"
    elif keys:
        key, secret = config.pop("access_key_id"), config.pop("secret_access_key")
        settings.provider = Fixed({"access_key_id": key, "secret_access_key": secret, "token": token})
        settings.hint = "look at access_key_id and secret_access_key in storage_options, and at what they may do"
        settings.credentials = "access_key_id of storage_options"
    elif profile:
        files = _Profile(str(profile))
    elif environment.get("AWS_ACCESS_KEY_ID") and environment.get("AWS_SECRET_ACCESS_KEY"):
        settings.hint = "look at AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and at what they may do"
        settings.credentials = "AWS_ACCESS_KEY_ID of the environment"
    elif environment.get("AWS_PROFILE"):
        files = _Profile(environment["AWS_PROFILE"])
    elif not _has_role(environment) and _has_default_profile(environment):
        files = _Profile(None)
    elif environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true" and not _has_role(environment):
        raise AccessError("there are no credentials for S3", hint=_NO_CREDENTIALS, url=address.url)
    else:
        settings.credentials = _role(environment)
    if files:
        settings.provider = files
        settings.hint = f"look at the AWS profile {files.name!r}, and at what it may do"
        settings.credentials = f"the AWS profile {files.name!r}"

    _region_and_endpoint(settings, files, environment)
    return settings


def _region_and_endpoint(settings: StoreSettings, files: _Profile | None, environment: Mapping[str, str]) -> None:
    config = settings.config
    endpoint = config.pop("endpoint", None)
    if endpoint is None:
        endpoint = first_set(environment, *_ENDPOINTS) or (files and files.endpoint)
    if endpoint is not None:
        # Under the name that comes first for obstore, so that no variable overrides what was decided here.
        config["aws_endpoint_url_s3"] = str(endpoint).rstrip("/")
        allow_http(str(endpoint), settings.client)
    region = config.pop("region", None) or first_set(environment, "AWS_REGION", "AWS_DEFAULT_REGION")
    config["region"] = region or (files and files.region) or "us-east-1"
    settings.detect_region = endpoint is None


def s3fs_arguments(
    options: Mapping[str, Any], waits: Mapping[str, float], environment: Mapping[str, str]
) -> dict[str, Any]:
    """The arguments of an ``S3FileSystem``. Where nothing says who asks, it looks where AWS's own tools do.

    Args:
        options: Those that the user gave.
        waits: ``connect_timeout`` and ``read_timeout``.
        environment: Variables.
    """
    arguments = S3.for_fsspec(options)
    for name in ("anon", "requester_pays"):
        if name in arguments:
            arguments[name] = str(arguments[name]).lower() == "requester" or truth(name, arguments[name])
    client = dict(arguments.pop("client_kwargs", {}))
    endpoint = arguments.get("endpoint_url") or client.pop("endpoint_url", None)
    arguments["endpoint_url"] = endpoint or first_set(environment, *_ENDPOINTS)
    if region := arguments.pop("region_name", None):
        client["region_name"] = region
    arguments["config_kwargs"] = {**waits, **arguments.pop("config_kwargs", {})}
    return arguments | {"client_kwargs": client}


def _has_role(environment: Mapping[str, str]) -> bool:
    """Whether the environment says where obstore gets a role's credentials."""
    return first_set(environment, *_ROLES) is not None


def _role(environment: Mapping[str, str]) -> str:
    """Which role obstore takes, for people."""
    variable = next((name for name in _ROLES if environment.get(name)), None)
    return f"the role of {variable}" if variable else "the role of this machine, if it has one"


def _has_default_profile(environment: Mapping[str, str]) -> bool:
    """Whether ``~/.aws`` has credentials under ``[default]``; read without botocore, to say when that is missing."""
    home = Path(environment.get("HOME") or Path.home()) / ".aws"
    for variable, name in (("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")):
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read(os.path.expanduser(environment.get(variable) or home / name))
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue
        if parser.has_section("default") and any(parser.has_option("default", source) for source in _SOURCES):
            return True
    return False


class _Profile:
    """Credentials, region and endpoint of a profile, by botocore. A provider for obstore."""

    def __init__(self, name: str | None) -> None:
        botocore = require("botocore.session", extra="aws", purpose="to read AWS profiles")
        self.name = name or "default"
        self._session = botocore.Session(profile=name)
        self._credentials: Any = None
        self.problem: AccessError | None = None
        try:
            scoped = self._session.get_scoped_config()
        except require("botocore.exceptions", extra="aws", purpose="to read AWS profiles").ProfileNotFound:
            raise AccessError(
                f"there is no AWS profile {self.name!r}",
                hint="profiles stand in ~/.aws/config and ~/.aws/credentials (`aws configure list-profiles`)",
            ) from None
        self.region: str | None = scoped.get("region")
        services = self._session.full_config.get("services", {}).get(scoped.get("services"), {})
        own = services.get("s3")
        own = own if isinstance(own, dict) else {}
        self.endpoint: str | None = own.get("endpoint_url") or scoped.get("endpoint_url")

    def __call__(self) -> dict[str, Any]:
        try:
            self._credentials = self._credentials or self._session.get_credentials()
            now = self._credentials.get_frozen_credentials() if self._credentials else None
        except Exception as error:
            # botocore's own words are left out: they may quote what a credential process printed.
            self._fail(f"gave no credentials ({type(error).__name__})")
        if now is None:
            self._fail("gives no credentials")
        # botocore renews them by itself, well before they expire; asking again is cheap.
        return {
            "access_key_id": now.access_key,
            "secret_access_key": now.secret_key,
            "token": now.token,
            "expires_at": datetime.datetime.now(datetime.UTC) + _LIFETIME,
        }

    def _fail(self, what: str) -> NoReturn:
        self.problem = AccessError(
            f"the AWS profile {self.name!r} {what}", hint="try `aws sts get-caller-identity`, or `aws sso login`"
        )
        raise self.problem from None
