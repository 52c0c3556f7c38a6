"""Hand withheld answers over to a program, such as a queue of people who answer instead."""

import asyncio
import json
from typing import Any

from exaul.serving.http.errors import RequestFailed
from exaul.serving.http.settings import logger
from exaul.serving.http.upstream import Upstream

MOST_WAITING = 1000  # answers; each may have some kilobytes of text
MOST_BYTES = 64 * 2**20  # of all that wait (chosen): an answer may have some megabytes
TIMEOUT_SECONDS = 10.0  # of a try
CLOSE_SECONDS = 5.0  # for the answers that wait when the service stops
PAUSES = 0.0, 1.0, 5.0  # seconds before each try


class Handover:
    """Post answers to one address in the background, each up to three times."""

    def __init__(self, url: str, key_variable: str | None) -> None:
        """Prepare, as ``Upstream``; the key is a bearer token of that program."""
        self._program = Upstream(url, key_variable, TIMEOUT_SECONDS, True)
        self._waiting = dict[asyncio.Task[None], int]()  # with the bytes of each

    def add(self, answer: dict[str, Any]) -> str:
        """Return ``queued``, or ``full`` if too many answers wait already, and so this one is not posted."""
        content, waiting = json.dumps(answer).encode(), self._waiting
        if len(waiting) >= MOST_WAITING or sum(waiting.values()) + len(content) > MOST_BYTES:
            logger.error("an answer was not handed over: %d wait already", len(waiting))
            return "full"
        task = asyncio.ensure_future(self._post(answer["id"], content))
        waiting[task] = len(content)
        task.add_done_callback(waiting.pop)
        return "queued"

    async def close(self) -> None:
        """Wait some seconds for the answers that are being posted, and close the connections."""
        if tasks := set(self._waiting):
            for task in (await asyncio.wait(tasks, timeout=CLOSE_SECONDS))[1]:
                task.cancel()
                logger.error("an answer was not handed over: the service stopped")
        await self._program.close()

    async def _post(self, id: str, content: bytes) -> None:
        for pause in PAUSES:
            await asyncio.sleep(pause)
            try:
                response = await self._program.exchange("POST", "", {}, True, content)
                if response.is_success:
                    return
                trouble = f"status {response.status_code}"
            except RequestFailed as failure:
                trouble = str(failure)
        logger.error("an answer was not handed over: %s (%s)", id, trouble)
