"""The flags of the gateway before a model."""

import json
from dataclasses import dataclass
from typing import Any

from exaul.engine.checks import BadInput, Configuration, check_holds, check_known, check_positive, quote, setting
from exaul.llm.endpoint import as_address, check_variable
from exaul.llm.scores import scorer_of
from exaul.serving.http.completions import MODES

RULES = "answer", "abstain", "error"  # for what is not decided
KEYS = "fixed", "token", "model", "header"
MOST_SAMPLES = 64


@dataclass(frozen=True, kw_only=True)
class GatewayFlags(Configuration):
    """The model behind the gateway, and what is done with its answers. Every field is a flag of ``exaul serve``.

    Raises:
        BadInput: a field is out of its range; the message names it.
    """

    upstream: str = setting("", "endpoint of the answers to decide on, such as http://127.0.0.1:8000/v1", "URL")
    upstream_key_variable: str | None = setting(
        None, "environment variable that holds the endpoint's key (default: pass the client's)", "NAME"
    )
    upstream_timeout: float = setting(600.0, "timeout of a call to the endpoint, and of a score, in seconds", "X")
    score: str = setting(
        "logprob",
        "score of an answer: logprob, p-true, verbal, agree, exact, entail, module:function, or a webhook's https://...",
        "NAME",
    )
    score_model: str | None = setting(
        None, "model that p-true, verbal, agree and entail ask (default: the client's)", "NAME"
    )
    samples: int = setting(5, "further answers that agree, exact and entail ask for", "N")
    withheld: str = setting("auto", "form of a withheld answer: auto, text, refusal, json or error", "NAME")
    abstention: str = setting("I don't know.", "text or refusal that replaces a withheld answer", "TEXT")
    withheld_json: str | None = setting(None, "JSON that replaces it in the form json", "TEXT")
    undecided: str = setting("error", "replies that are no text: answer, abstain, or error (status 400)", "NAME")
    tools: str = setting("answer", "tool calls, which are not decided: answer or abstain", "NAME")
    without_score: str = setting("abstain", "answers without score: answer, abstain, or error (status 502)", "NAME")
    fallback: str | None = setting(
        None,
        "what gets a withheld question: a second model, with a key of its own; NAME@URL, one of another endpoint; "
        "or https://..., a program, which gets the answer, too",
        "NAME",
    )
    fallback_key_variable: str | None = setting(
        None, "environment variable that holds the key of that address (default: none is sent)", "NAME"
    )
    models: tuple[str, ...] = setting((), "models that clients may name (default: any)", "NAME")
    pass_fields: tuple[str, ...] = setting((), "fields to pass on that OpenAI has not; any: all", "NAME")
    pass_routes: bool = setting(
        False, "pass on all other routes, undecided, to clients with the scope pass, whom you trust"
    )
    key: str = setting(
        "fixed",
        "key of a request: fixed, token (named in --tokens), model, or header (x-exaul-key, a name in --keys)",
        "NAME",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.upstream:
            others = "the other flags of the gateway (--log-score names the column of a log)"
            raise BadInput(f"upstream: missing; --upstream is required by {others}")
        object.__setattr__(self, "upstream", as_address("upstream", self.upstream))
        for flag in ("upstream_key_variable", "fallback_key_variable"):
            check_variable(flag, getattr(self, flag), is_set=True)
        _, address = self.second
        if self.fallback_key_variable and not (address or self.program):
            raise BadInput("fallback: an address is missing; --fallback-key-variable requires one")
        check_positive("upstream_timeout", self.upstream_timeout)
        check_holds("samples", self.samples, 1 <= self.samples <= MOST_SAMPLES, f"from 1 to {MOST_SAMPLES}")
        scorer_of(self.score)
        check_known("withheld", (self.withheld,), MODES)
        check_holds("abstention", self.abstention, bool(self.abstention.strip()), "a text")
        if self.withheld == "json" and self.withheld_json is None:
            raise BadInput("withheld_json: missing; --withheld json requires it")
        try:
            self.fixed  # noqa: B018  # it is checked
        except ValueError:
            raise BadInput(f"withheld_json: {quote(self.withheld_json)} found; it must be JSON") from None
        check_known("undecided", (self.undecided,), RULES)
        check_known("tools", (self.tools,), RULES[:2])
        check_known("key", (self.key,), KEYS)
        if self.key == "model" and not self.models:
            raise BadInput(
                "models: missing; --key model requires them, since each is a key with a bound of its own"
            )
        check_known("without_score", (self.without_score,), RULES)

    @property
    def second(self) -> tuple[str | None, str]:
        """The second model, and the address of its endpoint, empty if it is the first one's. ``BadInput``."""
        name, _, address = (self.fallback or "").partition("@http")
        if not address:
            return None if self.program else self.fallback, ""
        check_holds("fallback", self.fallback, name != "", "NAME, or NAME@URL")
        return name, as_address("fallback", f"http{address}")

    @property
    def program(self) -> str | None:
        """The address of a program that gets withheld answers, or None. ``BadInput``: it cannot be one."""
        given = self.fallback or ""
        return as_address("fallback", given) if given.startswith(("http://", "https://")) else None

    @property
    def fixed(self) -> Any:
        """The value of ``withheld_json``; None if there is none. ``ValueError``: it is not JSON."""
        return None if self.withheld_json is None else json.loads(self.withheld_json)
