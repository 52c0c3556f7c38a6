"""Chromium without a window, through its DevTools protocol."""

import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Self

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"),
)
SECONDS = 30.0  # until a wait fails


class Browser:
    """A page in a new Chromium with an empty profile."""

    def __init__(self, folder: Path) -> None:
        if PROGRAM is None:
            pytest.skip("Chromium is not installed")
        self.events: list[dict[str, Any]] = []  # what the page reported: requests, log entries, exceptions
        self._count, self._session, self._read = 0, None, b""
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        # Chromium reads requests from file 3 and writes replies to file 4, each with a null byte at its end.
        # By bash, since other shells know files up to 9 alone.
        redirected = f'exec "$@" 3<&{requests} 4>&{replies}'
        self._process = subprocess.Popen(
            ["bash", "-c", redirected, "bash", PROGRAM, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(requests, replies),
        )
        os.close(requests)
        os.close(replies)
        try:
            self._attach()
        except BaseException:
            self._process.kill()
            raise

    def _attach(self) -> None:
        target = self.send("Target.createTarget", url="about:blank")
        attached = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._replies], [], [], SECONDS)
            assert ready, "Chromium does not reply"
            piece = os.read(self._replies, 2**20)
            assert piece, "Chromium has ended"
            self._read += piece
        message, _, self._read = self._read.partition(b"\0")
        return json.loads(message)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol."""
        self._count += 1
        number = self._count
        session = {} if self._session is None else {"sessionId": self._session}
        request = {"id": number, "method": method, "params": params} | session
        os.write(self._requests, json.dumps(request).encode() + b"\0")
        while (reply := self._receive()).get("id") != number:
            self.events.append(reply)
        assert "error" not in reply, reply
        return reply["result"]

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression in the page, awaited if it is a promise."""
        reply = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def wait(self, script: str) -> Any:
        """Evaluate an expression until it is true."""
        deadline = time.monotonic() + SECONDS
        while not (value := self.evaluate(script)):
            assert time.monotonic() < deadline, f"never true: {script}"
            time.sleep(0.05)
        return value

    def open(self, url: str) -> None:
        """Open a page and wait until its script has run."""
        self.send("Page.navigate", url=url)
        self.wait(f"location.href == {url!r} && document.readyState == 'complete'")

    def events_of(self, method: str) -> list[dict[str, Any]]:
        """Return the parameters of all events so far with this name."""
        self.evaluate("0")  # receives what was sent before
        return [event["params"] for event in self.events if event.get("method") == method]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._requests)
        os.close(self._replies)
