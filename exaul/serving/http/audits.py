"""The open audits of a service, from wherever they can be reached, and the verdicts of a model on them."""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from exaul.engine.checks import BadInput, check_holds, join_lines, shorten
from exaul.llm.endpoint import as_address, read_key
from exaul.llm.scores import error_of
from exaul.serving.http.errors import CompletionFailed
from exaul.serving.http.upstream import Upstream
from exaul.serving.service import Service

MOST = 100  # audits at a time, the oldest first
TIMEOUT_SECONDS = 60.0  # of a request to the service, and of a call to the model
CONCURRENT = 8  # calls to the model


class Queue(NamedTuple):
    """The open audits of a service."""

    page: Callable[[int], tuple[int, list[dict[str, Any]]]]  # as ``Service.audits``, from a number on
    judge: Callable[[str, float], str]  # gives the verdict on an id, 1 if wrong, and returns the outcome


@contextmanager
def open_queue(where: str, token: str | None) -> Iterator[Queue]:
    """Yield the open audits of a running service, or of the file of one that is stopped.

    Args:
        where: its address, or its file.
        token: environment variable that holds a token with the scope ``audit``, or None.

    Raises:
        BadInput: it cannot be used.
    """
    if not where.startswith(("http://", "https://")):
        check_holds("where", where, Path(where).is_file(), "an address or a journal")
        service = Service(where, retain_days=1e6)  # the service deletes old texts, not this command
        try:
            yield Queue(partial(service.audits, MOST), service.feedback)
        finally:
            service.close()
        return
    address = as_address("where", where)
    headers = {"Authorization": f"Bearer {key}"} if (key := read_key(token)) else {}
    with httpx2.Client(headers=headers, timeout=TIMEOUT_SECONDS) as client:

        def exchange(method: str, **options: Any) -> Any:
            try:
                reply = client.request(method, f"{address}/v1/audits", **options)
                body = reply.json()
            except (httpx2.HTTPError, ValueError) as error:
                raise BadInput(f"{address}: no reply of a service ({type(error).__name__})") from error
            if not reply.is_success:
                raise BadInput(f"{address}: {shorten(join_lines(str(body)))}")
            return body

        def page(offset: int) -> tuple[int, list[dict[str, Any]]]:
            body = exchange("GET", params={"limit": MOST, "offset": offset})
            return body["total"], body["audits"]

        def judge(id: str, error: float) -> str:
            return str(exchange("POST", json={"id": id, "error": error})["reason"])

        yield Queue(page, judge)


async def errors_by_model(model: str, endpoint: str, key: str | None, rows: list[dict[str, Any]]) -> list[float]:
    """Return 1 for each answer that a model calls wrong, 0 for right, NaN if it does not say, or has no text.

    Args:
        model: that judges.
        endpoint: its address, up to ``/v1``.
        key: environment variable that holds the endpoint's key, or None.
        rows: as of ``Service.audits``.

    Raises:
        BadInput: the endpoint cannot be asked.
    """
    upstream, limit = Upstream(endpoint, key, TIMEOUT_SECONDS, True), asyncio.Semaphore(CONCURRENT)

    async def judged(row: Mapping[str, Any]) -> float:
        if row["text"] is None:
            return math.nan
        async with limit:
            ask = partial(upstream.reply, {})
            return await error_of(ask, model, row["question"], row["text"])

    try:
        return list(await asyncio.gather(*map(judged, rows)))
    except CompletionFailed as error:
        raise BadInput(f"endpoint: {error}") from error
    finally:
        await upstream.close()
