"""Requests to an OpenAI-compatible endpoint, with storage, budget and concurrency limit."""

import asyncio
import json
import math
import signal
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from exaul.llm.calls import Calls, Refusal, Reply, key_of
from exaul.llm.client import CallFailed, CallRefused, Client

THINKS, THOUGHT = b"<think>", b"</think>"  # delimiters of a reasoning model's thoughts
CHARACTERS = 4  # assumed characters per token if the endpoint does not count tokens


class BudgetReached(Exception):
    """No further call is allowed: the budget is spent or the run is ending."""


class ReplyMissing(Exception):
    """No stored reply, and calls are not allowed."""


@dataclass
class Budget:
    """Counts and costs of all endpoints together."""

    limit: float | None  # of ``spent``; None: no limit
    paid: int = 0  # calls made
    free: int = 0  # replies read from storage
    retried: int = 0  # calls that were retried
    spent: float = 0.0  # dollars of all runs in the folder; NaN if a price is unknown
    prompt_tokens: int = 0  # of the calls made
    reply_tokens: int = 0  # likewise
    systems: dict[str, Counter[str]] = field(default_factory=dict)  # replies by model and reported system

    def usage(self) -> dict[str, Any]:
        """Return the counts for the manifest."""
        return {
            "calls": self.paid,
            "from before": self.free,
            "tried again": self.retried,
            "prompt tokens": self.prompt_tokens,
            "reply tokens": self.reply_tokens,
            "dollars": None if math.isnan(self.spent) else self.spent,
        }

    def check(self) -> None:
        """Raise BudgetReached if the budget is spent."""
        if self.limit is not None and self.spent >= self.limit:
            raise BudgetReached


def run_to_end(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine. On SIGINT or SIGTERM cancel it, but wait for calls in flight, which are paid for.

    Raises:
        KeyboardInterrupt: a signal arrived; the argument is its number.
    """
    number = None

    async def guarded() -> Any:
        nonlocal number
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def stop(by: int) -> None:
            nonlocal number
            number = by
            task.cancel()

        # asyncio.run handles SIGINT only and does not report the signal. Only the main thread can set handlers.
        main_thread = threading.current_thread() is threading.main_thread()
        for which in (signal.SIGINT, signal.SIGTERM) if main_thread else ():
            loop.add_signal_handler(which, stop, which)
        return await main

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        raise KeyboardInterrupt(*([] if number is None else [int(number)])) from None


class ConcurrencyLimit:
    """A limit of concurrent calls that halves after a retried call and then recovers slowly."""

    def __init__(self, most: int) -> None:
        self.most, self.now, self.inside = most, float(most), 0
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        async with self._changed:
            await self._changed.wait_for(lambda: self.inside < int(self.now))
            self.inside += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        async with self._changed:
            self.inside -= 1
            self._changed.notify(int(self.now) - self.inside)

    def record(self, retried: bool) -> None:
        """Update the limit after a call; ``retried`` says whether it was retried."""
        # As TCP does: halve on congestion; otherwise about +1 per ``now`` successful calls.
        self.now = max(1.0, self.now / 2) if retried else min(float(self.most), self.now + 1 / self.now)


class Endpoint:
    """One endpoint. Equal concurrent requests share one call, and stored replies are reused.

    If ``stored`` is set, no call is made, and a missing reply raises ReplyMissing.
    """

    def __init__(
        self,
        url: str,
        calls: Calls,
        budget: Budget,
        *,
        key: str,
        prices: Mapping[str, tuple[float, float]],
        concurrent: int,
        per_minute: int | None,
        retries: int,
        timeout: float,
        remembers: bool = False,
    ) -> None:
        """Prepare an endpoint; send nothing yet.

        Args:
            url, key, retries, timeout: see ``Client``.
            calls: the stored replies.
            budget: counts and costs.
            prices: by model, dollars per million tokens of prompts and of replies.
            concurrent: maximum concurrent calls.
            per_minute: maximum calls per minute; None: no limit.
            remembers: whether refusals are stored.

        Raises:
            BadInput: the address is invalid.
        """
        self.url, self.calls, self.budget, self.prices = url, calls, budget, prices
        self.remembers, self.stored = remembers, False
        self._client = Client(url, key, retries, timeout)
        self._limit = ConcurrencyLimit(concurrent)
        self._rate_limit = None
        if per_minute is not None:
            from aiolimiter import AsyncLimiter

            self._rate_limit = AsyncLimiter(1, 60 / per_minute)
        self._in_flight: dict[str, asyncio.Task[Reply]] = {}

    async def ask(self, request: Mapping[str, Any], number: int = 0) -> Reply:
        """Return the reply to a request.

        Args:
            request: the body of a chat completion.
            number: the sample, among several replies to the same request.

        Raises:
            CallFailed: there is no reply after all retries.
            BudgetReached: the budget is spent.
            ReplyMissing: the reply is not stored, and calls are not allowed.
        """
        key = key_of(self.url, request, number)
        reply = self.calls.get(key)
        if isinstance(reply, Refusal):
            raise CallRefused(f"status {reply.status}", reply.message, reply.status)
        if reply is None:
            if self.stored:
                raise ReplyMissing
            task = self._in_flight.get(key)
            if task is None:
                task = self._in_flight[key] = asyncio.create_task(self._paid(key, request))
                task.add_done_callback(lambda _: self._in_flight.pop(key))
            reply = await asyncio.shield(task)  # a cancelled caller must not cancel a call that is paid for
        else:
            self.budget.free += 1
        systems = self.budget.systems.setdefault(request["model"], Counter())
        systems[" ".join((reply.model, reply.fingerprint)).strip()] += 1
        return reply

    async def close(self) -> None:
        """Wait for the calls in flight, which are paid for, and close the connections."""
        self._client.closing = True
        await asyncio.gather(*self._in_flight.values(), return_exceptions=True)
        await self._client.close()

    async def _paid(self, key: str, request: Mapping[str, Any]) -> Reply:
        async with self._limit:
            # Checked after waiting for a slot: both may have changed since the request was made.
            if self._client.closing:
                raise BudgetReached
            self.budget.check()
            if self._rate_limit is not None:
                await self._rate_limit.acquire()
            retried = False
            try:
                raw, tries = await self._client.send(request)
                retried = tries > 0
                reply = reply_of(json.loads(raw))
            except CallFailed as failed:
                retried = failed.temporary
                if self.remembers and isinstance(failed, CallRefused):
                    self.calls.put(key, Refusal(failed.status, failed.reply_text), 0.0)
                raise
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise CallFailed("unreadable reply") from error
            finally:
                self.budget.retried += retried
                self._limit.record(retried)
            if reply.prompt_tokens + reply.reply_tokens == 0:  # the endpoint does not count tokens
                sizes = len(json.dumps(request["messages"])), len(reply.text)
                prompt_tokens, reply_tokens = (-(-size // CHARACTERS) for size in sizes)
                reply = reply._replace(prompt_tokens=prompt_tokens, reply_tokens=reply_tokens)
            price = self.prices[request["model"]]
            dollars = (reply.prompt_tokens * price[0] + reply.reply_tokens * price[1]) / 1e6
            self.calls.put(key, reply, dollars)  # stored before anything can use it, so a crash loses no reply
            self.budget.paid += 1
            self.budget.prompt_tokens += reply.prompt_tokens
            self.budget.reply_tokens += reply.reply_tokens
            self.budget.spent += dollars
            return reply


def reply_of(body: Mapping[str, Any]) -> Reply:
    """Parse a chat completion.

    Only logprobs of tokens of the returned text are kept. If the text is not found among the tokens, as with
    endpoints that change it afterwards, there are none.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: the body is not a chat completion.
    """
    (choice,) = body["choices"]
    message, usage = choice["message"], body.get("usage") or {}
    whole = (message.get("content") or "").encode()
    if THOUGHT in whole:
        whole = whole[whole.rindex(THOUGHT) + len(THOUGHT) :]
    elif whole.lstrip().startswith(THINKS):
        whole = b""  # cut at max_tokens while still thinking: there is no answer
    text = whole.strip()
    # Compare bytes, not characters: a token can end within a character. ``rfind`` takes the last occurrence, since
    # the thoughts before it may quote the answer.
    tokens = [(_bytes_of(token), token) for token in (choice.get("logprobs") or {}).get("content") or []]
    start = b"".join(piece for piece, _ in tokens).rfind(text)
    offset, logprobs, first = 0, list[float](), list[tuple[str, float]]()
    for piece, token in tokens if text and start >= 0 else ():
        if piece and offset + len(piece) > start and offset < start + len(text):
            logprobs.append(min(float(token["logprob"]), 0.0))
            first = first or [
                (candidate["token"], float(candidate["logprob"])) for candidate in token.get("top_logprobs") or []
            ]
        offset += len(piece)
    if any(map(math.isnan, logprobs)):
        logprobs = []
    finish = "refusal" if message.get("refusal") else str(choice.get("finish_reason") or "")
    reported = str(body.get("model") or ""), str(body.get("system_fingerprint") or "")
    counted = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
    return Reply(text.decode(errors="replace"), logprobs, first, finish, *reported, *counted)


def _bytes_of(token: Mapping[str, Any]) -> bytes:
    return (
        # Without bytes, U+2581 in a token stands for a space (SentencePiece).
        bytes(token["bytes"]) if token.get("bytes") is not None else token["token"].replace("\u2581", " ").encode()
    )


def price_of(model: str) -> tuple[float, float]:
    """Return a model's list price, dollars per million tokens of prompts and of replies; NaN if unknown."""
    from genai_prices import Usage, calc_price

    price: Callable[..., Any] = calc_price
    try:
        each = (Usage(input_tokens=10**6), Usage(output_tokens=10**6))
        prompt, reply = (float(price(usage, model_ref=model).total_price) for usage in each)
    except (LookupError, ValueError):
        return float("nan"), float("nan")
    return prompt, reply
