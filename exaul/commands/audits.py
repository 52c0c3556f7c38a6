"""``exaul audits``: show the audited answers without a verdict, or let a model judge them."""

import asyncio
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from exaul.commands.flags import Command
from exaul.commands.terminal import terminal_width
from exaul.engine.checks import BadInput, Configuration, check_holds, join_lines, quote, setting, shorten
from exaul.engine.results.text_table import wrap
from exaul.llm.endpoint import as_address, check_key

MOST = 100  # audits at a time, the oldest
TIMEOUT_SECONDS = 60.0  # of a request to the service, and of a call to the model
CONCURRENT = 8  # calls to the model


@dataclass(frozen=True, kw_only=True)
class AuditsFlags(Configuration):
    """Whose audits, and who judges them. Every field is a flag of ``exaul audits``."""

    where: str = setting(
        MISSING, "address of a running service, http://HOST:PORT, or the file of one that is stopped", "URL|FILE"
    )
    token_variable: str | None = setting(
        None, "environment variable that holds a token of the service with the scope audit", "NAME"
    )
    judge_model: str | None = setting(None, "model that judges (default: print the audits)", "NAME")
    endpoint: str = setting("", "OpenAI-compatible endpoint of the judge, such as http://127.0.0.1:8000/v1", "URL")
    key_variable: str | None = setting(None, "environment variable that holds the endpoint's key", "NAME")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.judge_model is None) != (self.endpoint == ""):
            raise BadInput("judge_model, endpoint: one of the two is missing; a judge needs both")
        if self.endpoint:
            object.__setattr__(self, "endpoint", as_address("endpoint", self.endpoint))
        for name in ("token_variable", "key_variable"):
            variable = getattr(self, name)
            if variable is not None and not os.environ.get(variable):
                raise BadInput(f"{name}: the environment variable {variable} is not set")


class Queue(NamedTuple):
    """The open audits of a service."""

    total: int
    rows: list[dict[str, Any]]  # the oldest, as of ``Service.audits``
    judge: Callable[[str, float], str]  # gives the verdict on an id, 1 if wrong, and returns the outcome


@contextmanager
def open_queue(config: AuditsFlags) -> Iterator[Queue]:
    """Yield the open audits of a running service, or of the file of one. ``BadInput``: it cannot be used."""
    if not config.where.startswith(("http://", "https://")):
        from exaul.serving.service import Service

        check_holds("where", config.where, Path(config.where).is_file(), "an address or a journal")
        service = Service(config.where)
        try:
            yield Queue(service.count_open_audits(), service.audits(MOST), service.feedback)
        finally:
            service.close()
        return
    import httpx2

    address, token = as_address("where", config.where), config.token_variable
    headers = {"Authorization": f"Bearer {check_key(token, os.environ[token])}"} if token else {}
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

        body = exchange("GET", params={"limit": MOST})
        judge = partial(exchange, "POST")
        yield Queue(
            body["total"], body["audits"], lambda id, error: judge(json={"id": id, "error": error})["reason"]
        )


def main(given: Mapping[str, Any]) -> int:
    """Print the open audits, or the verdicts of a model on them."""
    config, width = AuditsFlags(**given), terminal_width()
    with open_queue(config) as queue:
        if config.judge_model is None:
            for row in queue.rows:
                print(f"{wrap(_describe(row), width)}\n")
            shown = f"{queue.total} open audits" + (f", the oldest {MOST} above" if queue.total > MOST else "")
            print(wrap(shown, width))
            return 0
        verdicts = asyncio.run(_verdicts(config, queue.rows))
        counts = Counter[str]()
        for row, error in zip(queue.rows, verdicts, strict=True):
            if math.isnan(error):
                counts["no text is kept" if row["text"] is None else "no clear verdict"] += 1
            elif (outcome := queue.judge(row["id"], error)) == "counted":
                counts["wrong" if error else "right"] += 1
            else:
                counts[outcome] += 1
    each = ", ".join(f"{reason}: {count}" for reason, count in sorted(counts.items()))
    judged = counts["right"] + counts["wrong"]
    print(wrap(f"{config.judge_model} judged {judged} of {queue.total} open audits ({each or 'none'})", width))
    return 0


def _describe(row: Mapping[str, Any]) -> str:
    when = datetime.fromtimestamp(row["at"], UTC).isoformat(timespec="minutes")
    head = f"{row['id']}, {when}, key {quote(row['key'])}, score {row['score']:.4g}"
    if row["text"] is None:
        return f"{head}\nno text is kept"
    return f"{head}\nquestion: {join_lines(row['question'])}\nanswer: {join_lines(row['text'])}"


async def _verdicts(config: AuditsFlags, rows: list[dict[str, Any]]) -> list[float]:
    """Return 1 for each answer that the judge calls wrong, 0 for right, NaN if it does not say."""
    from exaul.llm.scores import error_of
    from exaul.serving.http.upstream import CompletionFailed, Upstream

    upstream, limit = (
        Upstream(config.endpoint, config.key_variable, TIMEOUT_SECONDS, True),
        asyncio.Semaphore(CONCURRENT),
    )

    async def judged(row: Mapping[str, Any]) -> float:
        if row["text"] is None:
            return math.nan
        async with limit:
            ask = partial(upstream.reply, {})
            return await error_of(ask, str(config.judge_model), row["question"], row["text"])

    try:
        return list(await asyncio.gather(*map(judged, rows)))
    except CompletionFailed as error:
        raise BadInput(f"endpoint: {error}") from error
    finally:
        await upstream.close()


COMMANDS = {"audits": Command((AuditsFlags,), main)}
