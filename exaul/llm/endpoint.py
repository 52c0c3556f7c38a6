"""Requests to an OpenAI-compatible endpoint, whose replies are stored."""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from exaul.engine.checks import BadInput, check_holds, join_lines, shorten
from exaul.llm.calls import BudgetReached, CallFailed, CallRefused, Calls, key_of
from exaul.llm.replies import MAX_TOKENS, Reply, Unreadable, check_size, reply_of

if TYPE_CHECKING:
    from openai import APIStatusError

REFUSALS = 400, 413, 422  # statuses that depend on the request alone: never retried, and stored as refusals
MIN_KEY = 8  # minimum characters of a key that is removed from texts; keyless servers get words such as EMPTY
CHARACTERS_PER_TOKEN = 4  # assumed characters per token if the endpoint does not count tokens
NO_REPLY_IN_TIME = "no reply in time"
POLL_SECONDS = 0.1  # between looks for waiting calls while an endpoint is closed


def as_address(name: str, url: str) -> str:
    """Return an address without its trailing slash. Raise BadInput if it is invalid or may hold a secret."""
    from httpx2 import URL, InvalidURL

    if any(c in url for c in "@?#"):  # may hold a password or a key: never print it
        raise BadInput(
            f"{name}: an address with a user name, query or fragment may hold a key; a variable must hold it"
        )
    try:
        address = URL(url)
    except InvalidURL as error:
        raise BadInput(f"{name}: {url} is not an address ({error})") from error
    is_complete = address.scheme in ("http", "https") and bool(address.host)
    check_holds(name, url, is_complete, "an address, http(s)://HOST")
    return url.rstrip("/")


def check_variable(name: str, variable: str | None, *, is_set: bool) -> None:
    """Raise BadInput unless a flag is None or names an environment variable, with ``is_set`` one with a value."""
    if variable is not None and not variable.isidentifier():  # may be the key: never print it
        raise BadInput(f"{name}: it must be the name of an environment variable")
    if variable is not None and is_set and not os.environ.get(variable):
        raise BadInput(f"{name}: the environment variable {variable} is not set")


def read_key(variable: str | None) -> str | None:
    """Return the key in an environment variable, or None; raise BadInput, without it, if no header can hold it."""
    key = None if variable is None else os.environ.get(variable)
    if key is not None and not (key.isascii() and key.isprintable()):
        raise BadInput(f"{variable}: the key has a line break or another character that a header cannot hold")
    return key


def run_to_end(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine. On SIGINT or SIGTERM cancel it, but wait for calls in flight, which are paid for.

    Raises:
        KeyboardInterrupt: a signal arrived; the argument is SIGTERM if that was it.
    """

    async def guarded() -> Any:
        task = asyncio.current_task()
        assert task is not None
        # asyncio.run does so for SIGINT. Only the main thread can set handlers.
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await main

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        raise KeyboardInterrupt(signal.SIGTERM) from None


class Endpoint:
    """One endpoint. Equal concurrent requests share one call, and stored replies are reused."""

    def __init__(
        self,
        url: str,
        key: str,
        calls: Calls,
        config: Any,
        prices: Mapping[str, tuple[float, ...]],
        stores_refusals: bool,
    ) -> None:
        """Prepare an endpoint, of an address up to ``/v1``; send nothing yet.

        The environment variable ``key`` holds the key. ``config``, an ``EndpointFlags``, limits the calls.
        ``prices`` are, by model, dollars per million tokens of prompts and of replies. Refusals are stored only if
        it ``stores_refusals`` them.

        Raises:
            BadInput: the key or a proxy of the environment is invalid.
        """
        from aiolimiter import AsyncLimiter
        from openai import AsyncOpenAI

        from exaul.llm.http import BoundedClient

        self._url, self._calls, self._prices, self._stores_refusals = url, calls, prices, stores_refusals
        # Local servers need no key, but the header must not be empty.
        self._key = read_key(key) or "none"
        self._http = BoundedClient(config.timeout)
        self._client = AsyncOpenAI(
            base_url=url, api_key=self._key, max_retries=config.retries, http_client=self._http
        )
        self._slots = asyncio.Semaphore(config.concurrent)
        self._pace = AsyncLimiter(1, 60 / config.per_minute) if config.per_minute else nullcontext()
        self._in_flight: dict[str, asyncio.Task[Reply]] = {}

    async def ask(self, request: Mapping[str, Any], sample: int = 0) -> Reply:
        """Return the reply to the body of a chat completion; of equal ones, each ``sample`` is another call.

        Raises:
            CallFailed: there is no reply after all retries.
            BudgetReached: the budget is spent.
        """
        key = key_of(self._url, request, sample)
        reply = self._calls.get(key)
        if reply is None:
            task = self._in_flight.get(key)
            if task is None:
                task = self._in_flight[key] = asyncio.create_task(self._call(key, request))
                task.add_done_callback(lambda _: self._in_flight.pop(key))
            reply = await asyncio.shield(task)  # a cancelled caller must not cancel a call that is paid for
        else:
            self._calls.reused += 1
        self._calls.systems[request["model"]][" ".join((reply.model, reply.fingerprint)).strip()] += 1
        return reply

    async def close(self) -> None:
        """End calls that still wait, wait for those in flight, which are paid for, and close the connections."""
        while tasks := list(self._in_flight.values()):
            for task in tasks:
                if task not in self._http.sending:  # it waits for its turn, or between two tries
                    task.cancel()
            await asyncio.wait(tasks, timeout=POLL_SECONDS)
        await self._http.aclose()

    def redact(self, text: str) -> str:
        """Remove the key from a text: some endpoints repeat it."""
        return text.replace(self._key, "[key]") if len(self._key) >= MIN_KEY else text

    async def _call(self, key: str, request: Mapping[str, Any]) -> Reply:
        async with self._slots, self._pace:
            calls = self._calls
            if calls.budget is not None and calls.spent >= calls.budget:  # others may have spent it during the wait
                raise BudgetReached("the budget is reached")
            try:
                reply = reply_of(await self._send(request), self.redact)
            except CallRefused as refused:
                if self._stores_refusals:
                    self._calls.put(key, refused)
                raise
            except Unreadable as error:  # it costs what a reply costs
                max_tokens = request.get("max_tokens")
                tokens = max_tokens if isinstance(max_tokens, int) and 0 < max_tokens <= MAX_TOKENS else 0
                self._store(None, request, Reply("", reply_tokens=tokens))
                raise CallFailed("unreadable reply", str(error)) from error
            return self._store(key, request, reply)

    async def _send(self, request: Mapping[str, Any]) -> bytes:
        """Return the body of the response to a request.

        Raises:
            CallFailed: there is no response after the last retry.
            Unreadable: the response is too large.
        """
        from httpx2 import Response
        from openai import APIConnectionError, APIStatusError, APITimeoutError

        content = json.dumps(request).encode()  # not by the client, which refuses NaN and lone surrogates
        try:
            response = await self._client.post("/chat/completions", content=content, cast_to=Response)
        except APIStatusError as error:
            raise self._failure_of(error) from None
        except APIConnectionError as error:
            reason = NO_REPLY_IN_TIME if isinstance(error, APITimeoutError) else "no connection"
            raise CallFailed(reason) from error
        return check_size(response.content)

    def _failure_of(self, error: "APIStatusError") -> CallFailed:
        """Return the failure of a response, with its error message or the address to which it redirects."""
        status, body = error.status_code, error.body  # the ``error`` of JSON, else the text
        message = body.get("message") if isinstance(body, dict) else body
        text = message if isinstance(message, str) else error.response.text
        if 300 <= status < 400:
            text = f"it redirects to {error.response.headers.get('Location', 'nowhere')}"
        reply_text = join_lines(shorten(self.redact(text).strip()))
        return (CallRefused if status in REFUSALS else CallFailed)(f"status {status}", reply_text, status)

    def _store(self, key: str | None, request: Mapping[str, Any], reply: Reply) -> Reply:
        """Store a reply and its cost, and return it; estimate its tokens if the endpoint does not count them."""
        if reply.prompt_tokens == 0:
            size = len(json.dumps(request["messages"]))
            reply = reply._replace(prompt_tokens=min(-(-size // CHARACTERS_PER_TOKEN), MAX_TOKENS))
        if reply.reply_tokens == 0:
            reply = reply._replace(reply_tokens=min(-(-len(reply.text) // CHARACTERS_PER_TOKEN), MAX_TOKENS))
        price = self._prices[request["model"]]
        dollars = (reply.prompt_tokens * price[0] + reply.reply_tokens * price[1]) / 1e6
        self._calls.put(key, reply, dollars)  # stored before anything can use it, so a crash loses no reply
        return reply


def price_of(model: str) -> tuple[float, ...]:
    """Return a model's list price, dollars per million tokens of prompts and of replies; NaN if unknown."""
    from genai_prices import Usage, calc_price

    price: Callable[..., Any] = calc_price
    try:
        usages = (Usage(input_tokens=10**6), Usage(output_tokens=10**6))
        prompt, reply = (float(price(usage, model_ref=model).total_price) for usage in usages)
    except (LookupError, ValueError):
        return float("nan"), float("nan")
    return prompt, reply
