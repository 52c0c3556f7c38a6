"""The open audits of a running service or of its file, and the verdicts of a model on them."""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from exaul.engine.checks import BadInput, check_holds, join_lines, shorten
from exaul.llm.endpoint import as_address, read_key
from exaul.llm.scores import error_of
from exaul.serving.http.errors import RequestFailed
from exaul.serving.http.upstream import UNAUTHORIZED, BodyRefused, Upstream
from exaul.serving.lock import is_locked
from exaul.serving.service import Service

PAGE = 100  # audits at a time, the oldest first
TIMEOUT_SECONDS = 60.0  # of a request to the service, and of a call to the model
CONCURRENT = 8  # calls to the model


@contextmanager
def open_queue(
    where: str, token_variable: str | None
) -> Iterator[tuple[Callable[..., Any], Callable[[str, float], str]]]:
    """Yield two functions for the open audits of a running service, or of the file of one that is stopped.

    ``page(offset, **id)`` is ``Service.audits``, PAGE at a time; ``judge(id, error)`` gives a verdict, 1 if wrong,
    and returns the outcome.

    Args:
        where: address of the service, or its file.
        token_variable: environment variable that holds a token with the scope ``audit``, or None.

    Raises:
        BadInput: the service or the file cannot be used.
    """
    if not where.startswith(("http://", "https://")):
        check_holds("where", where, Path(where).is_file(), "http://HOST:PORT, or a journal that exists")
        check_holds("where", where, not is_locked(Path(where)), "http://HOST:PORT of the service that has it open")
        with closing(Service(where, retain_days=1e6)) as service:  # the service deletes old texts, not this command
            yield partial(service.audits, PAGE), service.feedback
        return
    address = as_address("where", where).removesuffix("/v1")  # as in the base URL of OpenAI's clients
    headers = {"Authorization": f"Bearer {key}"} if (key := read_key(token_variable)) else {}
    with httpx2.Client(headers=headers, timeout=TIMEOUT_SECONDS) as client:

        def exchange(method: str, *names: str, **options: Any) -> list[Any]:
            """Return some fields of the reply."""
            try:
                reply = client.request(method, f"{address}/v1/audits", **options)
                body = reply.json()
                if reply.is_success:
                    return [body[name] for name in names]
            except (httpx2.HTTPError, ValueError, LookupError, TypeError, RecursionError) as error:
                trouble = f"no reply of a service ({type(error).__name__}); for a stopped service, give its file"
                raise BadInput(f"{address}: {trouble}") from error
            message = body.get("error", {}).get("message") if isinstance(body, dict) else body
            needs = "; --token-variable names one with the scope audit" if reply.status_code in UNAUTHORIZED else ""
            raise BadInput(f"{address}: {shorten(join_lines(str(message)))}{needs}")

        yield (
            lambda offset, **id: exchange("GET", "total", "audits", params={"limit": PAGE, "offset": offset} | id),
            lambda id, error: exchange("POST", "reason", json={"id": id, "error": error})[0],
        )


async def errors_by_model(
    model: str, endpoint: str, key_variable: str | None, rows: list[dict[str, Any]]
) -> list[float]:
    """Return 1 for each answer that a model calls wrong, 0 for right, NaN if it does not say, fails or has no text.

    Args:
        model: that judges.
        endpoint: its address, up to ``/v1``.
        key_variable: environment variable that holds the endpoint's key, or None.
        rows: as in ``Service.audits``.

    Raises:
        BadInput: the endpoint cannot be asked, or fails for all rows with a text.
    """
    upstream, limit = Upstream(endpoint, key_variable, TIMEOUT_SECONDS, True), asyncio.Semaphore(CONCURRENT)
    failures = list[RequestFailed]()

    async def judged(row: Mapping[str, Any]) -> float:
        if row["text"] is None:
            return math.nan
        async with limit:
            try:
                return await error_of(partial(upstream.reply, {}), model, row["question"], row["text"])
            except RequestFailed as error:
                if not isinstance(error, BodyRefused):
                    failures.append(error)
                return math.nan

    try:
        errors = list(await asyncio.gather(*map(judged, rows)))
    finally:
        await upstream.close()
    if len(failures) == sum(row["text"] is not None for row in rows) > 0:
        raise BadInput(f"endpoint: {failures[0]}")
    return errors
