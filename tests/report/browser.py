"""A real Chromium, driven over its own pipe, so that tests need no other package."""

from __future__ import annotations

import json
import os
import subprocess
from base64 import b64decode
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class Browser:
    """One page in a Chromium without a network.

    Args:
        program: The executable.
        profile: An empty folder.
    """

    def __init__(self, program: str, profile: Path) -> None:
        theirs, self._write = os.pipe()
        self._read, back = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"]
        flags += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}"]

        def place() -> None:  # where Chromium looks for the pipe
            low, high = os.dup(theirs), os.dup(back)
            os.dup2(low, 3)
            os.dup2(high, 4)

        self._process = subprocess.Popen(
            [program, *flags], pass_fds=(3, 4), preexec_fn=place, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        os.close(theirs)
        os.close(back)
        self._rest, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self._session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")
        self("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def __call__(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": arguments}
        os.write(
            self._write, json.dumps(message | ({"sessionId": self._session} if self._session else {})).encode() + b"\0"
        )
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._read, 1 << 20)
            assert data, "Chromium ended"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def load(self, url: str) -> None:
        """Load a page, and wait until it is there."""
        self.events.clear()
        self("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def run(self, script: str) -> Any:
        """What an expression is."""
        found = self("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def key(self, key: str, text: str = "") -> None:
        """Press a key."""
        self("Input.dispatchKeyEvent", type="keyDown", key=key, **({"text": text} if text else {}))
        self("Input.dispatchKeyEvent", type="keyUp", key=key)

    def show(self, width: int, *, dark: bool, height: int = 900) -> None:
        """Another size of the window, and another theme of the system."""
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self("Emulation.setEmulatedMedia", features=features)

    def picture(self) -> bytes:
        """What is seen, as PNG."""
        return b64decode(self("Page.captureScreenshot")["data"])

    @property
    def errors(self) -> list[dict[str, Any]]:
        """What the console was told, exceptions and refused content among it."""
        wanted = (
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Log.entryAdded",
            "Page.javascriptDialogOpening",
        )
        return [event for event in self.events if event.get("method") in wanted]
