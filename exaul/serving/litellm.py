"""A guardrail for the proxy LiteLLM, which asks a running ``exaul serve`` whether to show an answer.

LiteLLM loads the class by its name in ``config.yaml``. No other file imports litellm.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from litellm.integrations.custom_guardrail import CustomGuardrail
from litellm.litellm_core_utils.core_helpers import get_or_create_metadata_bucket
from litellm.types.guardrails import GuardrailEventHooks, LitellmParams
from litellm.types.utils import Choices, Delta, Message, ModelResponse, ModelResponseStream, StreamingChoices

from exaul.engine.checks import BadInput
from exaul.serving.http.guardrail import (
    GuardrailConfiguration,
    GuardrailDecision,
    NoScore,
    answer_score,
    choices_of,
    decide,
    withdraw,
)

MODES = GuardrailEventHooks.pre_call, GuardrailEventHooks.post_call
CHAT = "completion", "acompletion"  # call types of /v1/chat/completions; others pass undecided
ADDED = "exaul_added_logprobs"  # in LiteLLM's metadata: the client did not ask for logprobs


class AbstentionGuardrail(CustomGuardrail):  # type: ignore[misc]  # litellm is not installed where types are checked
    """Replace answers that ``exaul serve`` withholds.

    Only chat completions are decided. Replies with tool calls, several choices or no logprobs pass, and the log of
    LiteLLM says why. The id of a decision is its call id, the header ``x-litellm-call-id`` of the reply.
    """

    def __init__(self, **parameters: Any) -> None:
        """Take the fields of ``GuardrailConfiguration`` and what LiteLLM passes to each guardrail.

        Raises:
            RuntimeError: a parameter is invalid, and LiteLLM does not start.
        """
        names = {field.name for field in fields(GuardrailConfiguration)}
        ours = {"guardrail_name", "event_hook", "default_on"}
        try:
            _check_parameters(parameters.keys() - names - ours, parameters.get("event_hook"))
            self._config = GuardrailConfiguration(**{name: parameters[name] for name in names & parameters.keys()})
        except BadInput as error:
            # LiteLLM logs a ValueError, which BadInput is, and starts without the guardrail.
            raise RuntimeError(f"guardrail {parameters.get('guardrail_name')}: {error}") from error
        self._withdrawing = set[asyncio.Task[None]]()  # the event loop alone would not keep them
        super().__init__(
            supported_event_hooks=list(MODES), **{name: parameters[name] for name in ours & parameters.keys()}
        )

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Ask the model for logprobs."""
        if call_type in CHAT:
            get_or_create_metadata_bucket(data)[1][ADDED] = not data.get("logprobs")
            data["logprobs"] = True
            if data.get("stream"):  # LiteLLM's cache keeps streams without logprobs: they would pass undecided
                data["cache"] = {"no-cache": True, "no-store": True}
        return data

    async def async_post_call_success_deployment_hook(self, *_: Any, **__: Any) -> None:
        """Do nothing: LiteLLM calls this for guardrails of a model, and then the next method, too."""

    async def async_post_call_success_hook(
        self, data: dict[str, Any], user_api_key_dict: Any, response: Any
    ) -> Any:
        """Decide on a completion that is not streamed; return what is sent to the client."""
        if not isinstance(response, ModelResponse):
            self._log(data, "not_run", time.time(), {"undecided": "route"})
            return response
        if await self._withholds(data, user_api_key_dict, response.model_dump(mode="json")["choices"]):
            return _abstention(response, self._config.abstention)
        return _without_logprobs(response) if _added_logprobs(data) else response

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
    ) -> AsyncIterator[Any]:
        """Hold a stream back until its end, decide on it, and send it or an abstention."""
        chunks: list[ModelResponseStream] = []
        async for chunk in response:
            if isinstance(chunk, ModelResponseStream):
                chunks.append(chunk)
            else:  # of a route whose replies have no logprobs
                yield chunk
        if not chunks:
            self._log(request_data, "not_run", time.time(), {"undecided": "route"})
            return
        choices = choices_of(chunk.model_dump(mode="json") for chunk in chunks)
        if await self._withholds(request_data, user_api_key_dict, choices):
            chunks = _streamed_abstention(chunks[-1], self._config.abstention)
        elif _added_logprobs(request_data):
            chunks = [_without_logprobs(chunk) for chunk in chunks]
        for chunk in chunks:
            yield chunk

    async def _withholds(self, data: dict[str, Any], user: Any, choices: Sequence[Mapping[str, Any]]) -> bool:
        """Decide on an answer, log the decision, and return whether to withhold the answer."""
        started, id = time.time(), data["litellm_call_id"]
        key = self._config.key_of(str(data.get("model") or ""), str(getattr(user, "team_id", None) or ""))
        try:
            score = answer_score(choices)
        except NoScore as reason:
            self._log(data, "not_run", started, {"id": id, "undecided": str(reason)})
            return False
        try:
            decision = await decide(self._config, score, key, id)
        except asyncio.CancelledError:  # the client is gone, but the service may have decided
            self._withdraw(id)
            raise
        withheld = not (decision.answer or self._config.shadow)
        if withheld and decision.is_lost:
            self._withdraw(id)
        facts = {"id": id, "abstainer": key, "score": score, "withheld": withheld, "shadow": self._config.shadow}
        self._log(data, _status_of(decision, withheld), started, facts | decision._asdict())
        return withheld

    def _withdraw(self, id: str) -> None:
        task = asyncio.create_task(withdraw(self._config, id))
        self._withdrawing.add(task)
        task.add_done_callback(self._withdrawing.discard)

    def _log(self, data: dict[str, Any], status: str, started: float, facts: Mapping[str, Any]) -> None:
        ended = time.time()
        self.add_standard_logging_guardrail_information_to_request_data(
            guardrail_json_response=dict(facts),
            request_data=data,
            guardrail_status=status,
            start_time=started,
            end_time=ended,
            duration=ended - started,
            guardrail_provider="exaul",
            event_type=GuardrailEventHooks.post_call,
        )


def _check_parameters(others: set[str], modes: Any) -> None:
    """Check what LiteLLM itself does not check: it ignores parameters that it does not know."""
    for name in sorted(others - LitellmParams.model_fields.keys()):
        raise BadInput(f"{name}: unknown; it must be a field of LiteLLM's guardrails or of GuardrailConfiguration")
    if not isinstance(modes, list) or sorted(modes) != sorted(MODES):
        raise BadInput(f"mode: {modes!r} found; it must be [pre_call, post_call]")


def _status_of(decision: GuardrailDecision, withheld: bool) -> str:
    if decision.error is not None:
        return "guardrail_failed_to_respond"
    if decision.answer:
        return "success"
    return "guardrail_intervened" if withheld else "guardrail_flagged"


def _added_logprobs(data: dict[str, Any]) -> bool:
    return bool(get_or_create_metadata_bucket(data)[1].get(ADDED))


def _abstention(response: Any, text: str) -> Any:
    """Return a new completion: other fields of the withheld one might quote it."""
    choice = Choices(index=0, finish_reason="stop", message=Message(role="assistant", content=text))
    usage = getattr(response, "usage", None)
    abstention = ModelResponse(
        id=response.id, created=response.created, model=response.model, choices=[choice], usage=usage
    )
    abstention._hidden_params = response._hidden_params  # of which LiteLLM makes headers
    return abstention


def _streamed_abstention(last: Any, text: str) -> list[Any]:
    """Return the chunks of an abstention; ``last``, of the withheld stream, may have the usage."""
    parts = [
        StreamingChoices(index=0, delta=Delta(role="assistant", content=text)),
        StreamingChoices(index=0, delta=Delta(), finish_reason="stop"),
    ]
    names = {"id": last.id, "created": last.created, "model": last.model}
    chunks = [ModelResponseStream(choices=[part], **names) for part in parts]
    usage = getattr(last, "usage", None)
    return chunks if usage is None else [*chunks, ModelResponseStream(choices=[], usage=usage, **names)]


def _without_logprobs(response: Any) -> Any:
    """Return a copy without logprobs; a cache of LiteLLM may hold the original."""
    copy = response.model_copy(deep=True)
    for choice in copy.choices:
        choice.logprobs = None
    return copy
