"""In which region a bucket of AWS lies: it tells everybody."""

from __future__ import annotations

import asyncio
import http.client
import re

_HOST = "s3.us-east-1.amazonaws.com"


async def bucket_region(bucket: str, *, host: str | None = None, wait: float = 5.0) -> str | None:
    """The region of a bucket, by one request that needs no credentials; ``None`` if nobody says.

    Args:
        bucket: Its name.
        host: Whom to ask; default: AWS.
        wait: Seconds to wait for the answer.
    """
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,255}", bucket):
        return None
    return await asyncio.to_thread(_ask, bucket, host or _HOST, wait)


def _ask(bucket: str, host: str, wait: float) -> str | None:
    connection = http.client.HTTPSConnection(host, timeout=wait)
    try:
        connection.request("HEAD", f"/{bucket}")
        region = connection.getresponse().getheader("x-amz-bucket-region")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return region if region and re.fullmatch(r"[a-z0-9-]{1,32}", region) else None
