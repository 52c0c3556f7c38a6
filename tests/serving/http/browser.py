"""Chromium without a window, through its DevTools protocol."""

import asyncio
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0"),
)
SECONDS = 30.0  # until a wait fails

needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed")


class Browser:
    """A page in a new Chromium with an empty profile."""

    def __init__(self, folder: Path) -> None:
        assert PROGRAM is not None
        self.events: list[dict[str, Any]] = []  # what the page reported: requests, log entries, exceptions
        self._count, self._loop = 0, asyncio.new_event_loop()
        self._process = subprocess.Popen(
            [PROGRAM, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._loop.run_until_complete(self._connect(folder / "DevToolsActivePort"))
        except BaseException:
            self._process.kill()
            raise

    async def _connect(self, port_file: Path) -> None:
        deadline = time.monotonic() + SECONDS
        while not (port_file.exists() and len(port_file.read_text().splitlines()) == 2):
            assert time.monotonic() < deadline, "Chromium does not start"
            await asyncio.sleep(0.05)
        port, path = port_file.read_text().splitlines()
        self._http = aiohttp.ClientSession()
        self._socket = await self._http.ws_connect(f"ws://127.0.0.1:{port}{path}", max_msg_size=0)
        self._session = None
        target = await self._send("Target.createTarget", url="about:blank")
        attached = await self._send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self._send(f"{domain}.enable")

    async def _send(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        number = self._count
        session = {} if self._session is None else {"sessionId": self._session}
        await self._socket.send_json({"id": number, "method": method, "params": params} | session)
        while True:
            reply = await self._socket.receive_json(timeout=SECONDS)
            if reply.get("id") == number:
                assert "error" not in reply, reply
                return reply["result"]
            self.events.append(reply)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol."""
        return self._loop.run_until_complete(self._send(method, **params))

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
        self._loop.run_until_complete(self._socket.close())
        self._loop.run_until_complete(self._http.close())
        self._loop.close()
        self._process.kill()
        self._process.wait()
