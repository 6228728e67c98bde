"""What the errors of fsspec's file systems mean: each raises what its library raises. Nothing they quote is shown."""

from __future__ import annotations

from shardstream.errors import MissingExtraError, NotFoundError, StorageError, UsageError
from shardstream.storage.clients.obstore_errors import Answer, refusal
from shardstream.storage.transfer.client import Fault


def answer_of(error: BaseException) -> Answer:
    """The status and code that the server's answer had, as boto, azure-core, aiohttp, gcsfs and the hub keep them."""
    status, code = 0, ""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            status = status or int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) or 0)
            code = code or str(response.get("Error", {}).get("Code", ""))
        values = [getattr(holder, name, None) for holder in (cause, response) for name in ("status_code", "status")]
        values.append(vars(cause).get("code"))  # not a property: aiohttp's warns
        status = status or next((value for value in values if isinstance(value, int) and 100 <= value < 600), 0)
        named = getattr(cause, "error_code", None)
        code = code or (str(getattr(named, "value", named)) if named else "")
        cause = cause.__cause__ or cause.__context__
    return Answer(status, code if code.isalnum() and not code.isdigit() else "", "")


def without_answer(error: BaseException, hint: str) -> Exception:
    """What to raise in an error's place, where no server's answer stands behind it."""
    names = {kind.__name__ for kind in type(error).__mro__}
    for one in (error, error.__cause__):
        if isinstance(one, StorageError | UsageError | MissingExtraError):
            return one
    if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError):
        return NotFoundError("no such object")
    if isinstance(error, PermissionError) or names & {
        "NoCredentialsError",
        "PartialCredentialsError",
        "TokenRetrievalError",
    }:
        return refusal(403, "", hint)
    if isinstance(error, TimeoutError) or names & {"FSTimeoutError", "ReadTimeoutError", "ServerTimeoutError"}:
        return Fault("timeout", "nothing came for as long as the read timeout")
    if names & {"IncompleteReadError", "ClientPayloadError", "IncompleteRead", "ResponseStreamingError"}:
        return Fault("short body", "the answer ended too early")
    connection = {
        "ClientConnectionError",
        "ConnectionError",  # botocore's, which is no ConnectionError of Python's
        "HTTPClientError",
        "ServiceRequestError",
        "ServiceResponseError",
        "TransportError",
    }
    if isinstance(error, ConnectionError) or names & (connection | {"ClientError", "ConnectError", "RequestException"}):
        return Fault("connection", "the connection broke, or could not be made")
    if isinstance(error, NotImplementedError):
        return StorageError("the file system cannot do that")
    return StorageError(f"fsspec failed ({type(error).__name__})")
