"""What obstore's errors mean. Pure functions of their text.

The texts hold the request's whole URL (with the query that signs it), the server's answer and a dump of internals, so
nothing of them is ever shown: they are searched for a status, a code and a kind, and sentences of our own are said.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from shardstream.errors import AccessError, MissingExtraError, NotFoundError, StorageError, UsageError
from shardstream.storage.base.no_ranges import no_ranges
from shardstream.storage.transfer.client import Fault, replaced

_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>\s*([A-Za-z0-9.]{1,64})\s*</Code>|\"reason\":\s*\"([A-Za-z]{1,64})\"")
_KIND = re.compile(r"\bkind: (Timeout|Connect|Request|Interrupted|Decode|Body)\b")
# Where machines and containers ask for the credentials of their role.
_ROLES = ("://169.254.", "://[fd00:ec2::254]", "metadata.google.internal")
_PATH = re.compile(r'Path "([\s\S]{1,1024}?)"(?::| contained)')
_REDIRECT = re.compile(r"\bkind: Redirect\b")
_REGION = re.compile(r"<Region>([a-z0-9-]{1,32})</Region>")

_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted", "FilesystemNotFound", "ContainerDisabled"}
_THROTTLED = {
    "SlowDown",
    "ServerBusy",
    "ThrottlingException",
    "Throttling",
    "RequestLimitExceeded",
    "BandwidthLimitExceeded",
    "TooManyRequests",
    "rateLimitExceeded",
    "userRateLimitExceeded",
}
_EXPIRED = {
    "ExpiredToken",
    "ExpiredTokenException",
    "TokenRefreshRequired",
    "InvalidAuthenticationInfo",  # Azure: "Lifetime validation failed. The token is expired."
    "AuthenticationFailed",  # Azure: a SAS past its time, among others
    "AuthorizationFailure",  # the same, as Azurite says it
    "RequestExpired",
    "authError",
}
_REFUSED = {
    "InvalidAccessKeyId": "the access key is not known there",
    "SignatureDoesNotMatch": "the secret key does not belong to the access key",
    "AccessDenied": "access is denied",
    "InvalidToken": "the session token is not valid",
    "ExpiredToken": "the session token has expired",
    "ExpiredTokenException": "the session token has expired",
    "TokenRefreshRequired": "the session token has expired",
    "RequestTimeTooSkewed": "this machine's clock is wrong",
    "AccountProblem": "there is a problem with the account",
    "AllAccessDisabled": "all access to the bucket is disabled",
    "InvalidAuthenticationInfo": "the token is not valid, or has expired",
    "AuthenticationFailed": "the key or SAS token is not right, or has expired",
    "AuthorizationFailure": "the key or token is not right, has expired, or may not be used from this network",
    "AuthorizationPermissionMismatch": "the identity lacks the right (such as the role 'Storage Blob Data Reader')",
    "AuthorizationServiceMismatch": "the SAS token is not for the blob service",
    "AuthorizationResourceTypeMismatch": "the SAS token does not cover this kind of resource (srt=)",
    "AuthorizationSourceIPMismatch": "the SAS token is for another network address",
    "AuthorizationProtocolMismatch": "the SAS token is for https only",
    "InsufficientAccountPermissions": "the account lacks the right",
    "KeyBasedAuthenticationNotPermitted": "the account does not allow keys (use an identity)",
    "PublicAccessNotPermitted": "the account does not allow anonymous access",
    "NoAuthenticationInformation": "the container is not open to everybody, and no credentials were sent",
    "ResourceNotFound": "the container is not open to everybody, or does not exist",
    "AccountIsDisabled": "the account is disabled",
}


class Answer(NamedTuple):
    """What an error says of a server's answer.

    Attributes:
        status: HTTP status, 0 where there was none.
        code: The store's own code, such as ``NoSuchKey``; empty where it gave none.
        region: Region that the store names in place of the one that was used.
        wait: Seconds that it asks us to wait (``Retry-After``), where the library shows that: obstore shows no headers.
    """

    status: int
    code: str
    region: str
    wait: float | None = None


class Expired(Exception):
    """The store refuses credentials that may be renewed.

    Args:
        refusal: The error where they cannot.
    """

    def __init__(self, refusal: AccessError) -> None:
        super().__init__(refusal.what)
        self.refusal = refusal


class NoRole(Exception):
    """The machine was asked for the credentials of its role, and gave none."""


class OddKey(Exception):
    """A listing has a key that obstore cannot take for a path.

    Args:
        key: The key, as far as the error shows it.
    """

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class WrongRegion(Exception):
    """The bucket lies elsewhere.

    Args:
        region: Where, if the answer says it.
    """

    def __init__(self, region: str) -> None:
        super().__init__(region)
        self.region = region


def answer_of(error: BaseException) -> Answer:
    """The status and code that an error of obstore holds."""
    text = str(error)
    status = _STATUS.search(text)
    code = _CODE.search(text)
    region = _REGION.search(text)
    return Answer(
        int(status[1]) if status else 0,
        (code[1] or code[2]) if code else "",
        region[1] if region else "",
    )


def explain(error: BaseException, *, bucket: str, hint: str, sending: bool = False) -> Exception:
    """What to raise in an error's place.

    Args:
        error: What obstore raised.
        bucket: How to call the bucket or container in messages; empty for web servers.
        hint: What to do where credentials are refused.
        sending: Whether something was being written.

    Returns:
        A Fault, an error of ours without a place, or one of the cases `Expired`, `NoRole`, `OddKey`, `OutOfRange`,
        `WrongRegion`.
    """
    text = str(error)
    answer = answer_of(error)
    if any(place in text for place in _ROLES):
        return NoRole()
    if not answer.status and not answer.code:
        return _without_answer(error, text, type(error).__name__, hint)
    return from_answer(answer, bucket=bucket, hint=hint, sending=sending)


def from_answer(answer: Answer, *, bucket: str, hint: str, sending: bool = False) -> Exception:
    """What a status and a code mean; see `explain`."""
    status, code, region, wait = answer
    if code in ("PermanentRedirect", "AuthorizationHeaderMalformed") or status == 301:
        return WrongRegion(region)
    if code in _NO_BUCKET:
        return NotFoundError(
            f"there is no bucket or container {bucket!r}", hint="look at its name, and at the account's"
        )
    if (code in _EXPIRED and status in (400, 401, 403)) or (status == 401 and not code):
        return Expired(refusal(status, code, hint, sending=sending))
    if code == "RequestTimeout" or status == 408:
        return Fault("timeout", "the store gave up waiting for the request")
    if code in _THROTTLED or status == 429:
        what = f"the store is throttling (status {status}{f', {code}' if code else ''})"
        return Fault("throttled", what, wait=wait)
    if status >= 500 and status not in (501, 505):
        what = f"the store answered with status {status}{f' ({code})' if code else ''}"
        return Fault("server error", what, wait=wait)
    if status in (401, 403) or code in _REFUSED:
        return refusal(status, code, hint, sending=sending)
    if status == 404:
        return NotFoundError("no such object")
    if status == 412:
        return replaced()
    if status == 416:
        return OutOfRange()
    return StorageError(f"the store answered with status {status}{f' ({code})' if code else ''}")


def untrusted_certificate() -> StorageError:
    """The error for a server whose certificate no known authority has signed."""
    return StorageError(
        "the server's certificate is not trusted",
        hint="give its authority by storage_options={'root_certificate': PEM}",
    )


def endless_redirects() -> StorageError:
    """The error for a server that redirects again and again."""
    return StorageError("the server redirects more than 10 times", hint="open the URL with `curl -IL` to see where to")


class OutOfRange(Exception):
    """The object ends before the range begins."""


def refusal(status: int, code: str, hint: str, *, sending: bool = False) -> AccessError:
    """The error for a request that the store did not allow."""
    said = _REFUSED.get(code, "")
    if code == "RequestTimeTooSkewed":
        hint = "set the clock"
    elif code in ("AccessDenied", "AuthorizationPermissionMismatch", ""):
        hint = f"{hint}; {'writing' if sending else 'reading'} needs the right to it"
    what = f"the store refuses: {said}" if said else "the store refuses"
    return AccessError(f"{what} (status {status}{f', {code}' if code else ''})", hint=hint)


def _without_answer(error: BaseException, text: str, name: str, hint: str) -> Exception:
    """Errors that no server's answer stands behind."""
    lower = text.lower()
    if isinstance(error, FileNotFoundError):
        return NotFoundError("no such object")
    if _REDIRECT.search(text):
        if "source: TooManyRedirects" in text:
            return endless_redirects()
        return StorageError("the server redirects to an address that is not followed, as from https to http")
    if name == "InvalidPathError":
        found = _PATH.search(text)
        return OddKey(found[1] if found else "")
    if "received redirect" in lower or "bareredirect" in lower:
        return WrongRegion("")
    if "External" in text and "credential provider" in text:
        return AccessError("the credential provider failed", hint=hint)
    if name == "UnauthenticatedError":
        return AccessError("there are no credentials that could be used", hint=hint)
    if name == "UnknownConfigurationKeyError":
        found = re.search(r"Configuration key: '([A-Za-z0-9_.-]{1,64})'", text)
        return UsageError(f"storage_options: {found[1] if found else 'one name'!r} is not an option of this store")
    if "Wanted range starting at" in text:
        return OutOfRange()
    if ("Requested " in text and "UnexpectedRange" in text) or "NotPartial" in text:
        return Fault("wrong range", "the store sent another range than was asked for")
    if "RangeNotSupported" in text:
        return no_ranges()
    if "MissingContentLength" in text:
        return StorageError("the server does not say how long the file is")
    if "certificate" in lower:
        return untrusted_certificate()
    if "BadScheme" in text:
        return UsageError("this is an http:// endpoint", hint="storage_options={'allow_http': True} allows it")
    if "dns error" in lower or "failed to lookup address" in lower:
        return Fault("connection", "the name of the host was not found")
    kind = _KIND.search(text)
    if kind or "HTTP error" in text:
        if kind and kind[1] == "Timeout":
            return Fault("timeout", "nothing came for as long as the read timeout")
        if kind and kind[1] == "Connect":
            return Fault("connection", "no connection could be made")
        if "IncompleteBody" in text or "UnexpectedEof" in text:
            return Fault("short body", "the answer ended too early")
        return Fault("connection", "the connection broke")
    if isinstance(error, MissingExtraError | UsageError | StorageError):
        return error
    if name == "NotSupportedError" or isinstance(error, NotImplementedError):
        return StorageError("the store cannot do that")
    if isinstance(error, ValueError) and "parse path" in text:
        return UsageError("an object's name has an empty part, '.', '..' or a control character")
    return StorageError(f"obstore failed ({name})")
