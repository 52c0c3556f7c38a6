"""The flags of the gateway before a model."""

import os
from dataclasses import dataclass

from exaul.engine.checks import BadInput, Configuration, check_holds, check_known, check_positive, setting
from exaul.llm.endpoint_flags import as_address

WITHOUT_SCORE = "answer", "abstain", "error"
MOST_SAMPLES = 64


@dataclass(frozen=True, kw_only=True)
class GatewayFlags(Configuration):
    """The model behind the gateway, and what is done with its answers. Every field is a flag of ``exaul serve``.

    Raises:
        BadInput: a field is out of its range; the message names it.
    """

    upstream: str = setting(
        "",
        "endpoint whose answers a gateway decides on, such as http://127.0.0.1:8000/v1",
        "URL",
    )
    upstream_key_variable: str | None = setting(
        None, "environment variable that holds the endpoint's key (default: pass the client's)", "NAME"
    )
    upstream_timeout: float = setting(600.0, "timeout of a call to the endpoint, in seconds", "X")
    abstention: str = setting("I don't know.", "text that replaces a withheld answer", "TEXT")
    samples: int = setting(
        0, "score an answer by the share of so many samples that agree with it; 0: by its likelihood", "N"
    )
    without_score: str = setting(
        "error", "what to do with an answer that has no score: answer, abstain, or error (status 502)", "NAME"
    )
    shadow: bool = setting(False, "show every answer; the reply says what would have been withheld")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.upstream:
            raise BadInput("upstream: missing; --upstream is required by the other flags of the gateway")
        object.__setattr__(self, "upstream", as_address("upstream", self.upstream))
        name = self.upstream_key_variable
        if name is not None and not name.isidentifier():  # may be the key: never print it
            raise BadInput("upstream_key_variable: it must be the name of an environment variable")
        if name is not None and not os.environ.get(name):
            raise BadInput(f"upstream_key_variable: the environment variable {name} is not set")
        check_positive("upstream_timeout", self.upstream_timeout)
        check_holds("abstention", self.abstention, bool(self.abstention.strip()), "a text")
        check_holds("samples", self.samples, 0 <= self.samples <= MOST_SAMPLES, f"from 0 to {MOST_SAMPLES}")
        check_known("without_score", (self.without_score,), WITHOUT_SCORE)
