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

from exaul.llm.calls import Calls, CallTotals, Refusal, key_of
from exaul.llm.client import CallFailed, CallRefused, Client
from exaul.llm.replies import MOST_TOKENS, Reply, Unreadable, reply_of

CHARACTERS = 4  # assumed characters per token if the endpoint does not count tokens


class BudgetReached(Exception):
    """No further call is allowed: the budget is spent or the run is ending."""


class ReplyMissing(Exception):
    """No stored reply, and calls are not allowed."""


@dataclass
class Budget:
    """Counts and costs of all endpoints together."""

    limit: float | None  # of ``spent``; None: no limit
    before: CallTotals  # of earlier runs in the folder
    paid: int = 0  # calls made
    free: int = 0  # replies read from storage
    retried: int = 0  # calls that were retried
    prompt_tokens: int = 0  # of the calls made
    reply_tokens: int = 0  # likewise
    dollars: float = 0.0  # likewise; NaN if a price is unknown
    systems: dict[str, Counter[str]] = field(default_factory=dict)  # replies by model and reported system

    @property
    def spent(self) -> float:
        """Dollars of all runs in the folder; NaN if a price is unknown."""
        return self.before.dollars + self.dollars

    def usage(self) -> dict[str, Any]:
        """Return the counts of all runs in the folder, and those of this run, for the manifest."""
        return {
            "calls": self.before.calls + self.paid,
            "prompt tokens": self.before.prompt_tokens + self.prompt_tokens,
            "reply tokens": self.before.reply_tokens + self.reply_tokens,
            "dollars": None if math.isnan(self.spent) else self.spent,
            "last run": {"calls": self.paid, "from before": self.free, "tried again": self.retried},
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
        self._client.closing.set()
        await asyncio.gather(*self._in_flight.values(), return_exceptions=True)
        await self._client.close()

    async def _paid(self, key: str, request: Mapping[str, Any]) -> Reply:
        async with self._limit:
            if self._rate_limit is not None:
                await self._client.wait_for(self._rate_limit.acquire())
            # Checked after waiting: both may have changed since the request was made.
            if self._client.closing.is_set():
                raise BudgetReached
            self.budget.check()
            retried = False
            try:
                raw, tries = await self._client.send(request)
                retried = tries > 0
                reply = reply_of(raw, self._client.redact)
            except CallFailed as failed:
                retried = failed.temporary
                if self.remembers and isinstance(failed, CallRefused):
                    self.calls.put(key, Refusal(failed.status, failed.reply_text), 0.0)
                raise
            except Unreadable as error:  # it costs what a reply costs
                most = request.get("max_tokens")
                tokens = most if isinstance(most, int) and 0 < most <= MOST_TOKENS else 0
                self._count(None, request, Reply("", [], [], "", "", "", 0, tokens))
                raise CallFailed("unreadable reply", str(error)) from error
            finally:
                self.budget.retried += retried
                self._limit.record(retried)
            return self._count(key, request, reply)

    def _count(self, key: str | None, request: Mapping[str, Any], reply: Reply) -> Reply:
        """Store a reply and what it costs, and return it; model its tokens if the endpoint does not count them."""
        if reply.prompt_tokens == 0:
            size = len(json.dumps(request["messages"]))
            reply = reply._replace(prompt_tokens=min(-(-size // CHARACTERS), MOST_TOKENS))
        if reply.reply_tokens == 0:
            reply = reply._replace(reply_tokens=min(-(-len(reply.text) // CHARACTERS), MOST_TOKENS))
        price = self.prices[request["model"]]
        dollars = (reply.prompt_tokens * price[0] + reply.reply_tokens * price[1]) / 1e6
        self.calls.put(key, reply, dollars)  # stored before anything can use it, so a crash loses no reply
        self.budget.paid += 1
        self.budget.prompt_tokens += reply.prompt_tokens
        self.budget.reply_tokens += reply.reply_tokens
        self.budget.dollars += dollars
        return reply


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
