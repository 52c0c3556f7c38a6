"""Whom to ask, and for what: the flags that ``exaul collect`` and ``exaul live`` share."""

import json
import math
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from exaul.engine.checks import (
    BadInput,
    Configuration,
    check_count,
    check_holds,
    check_known,
    check_not_negative,
    check_positive,
    setting,
)
from exaul.engine.machine.progress import MODES

SCORES = "std", "con"
ENTAIL = "exact", "llm", "llm-p"
JUDGES = "exact", "llm", "both"
NEEDED = "aiohttp", "aiolimiter", "genai_prices"


OWN = (  # fields of a request that ``extra`` may not have
    *("model", "messages", "temperature", "seed", "n", "stream", "logprobs", "top_logprobs", "response_format"),
    *("extra_headers", "extra_query", "extra_body"),
)


def _address(name: str, url: str | None) -> str | None:
    """An address without its last stroke.

    Raises:
        BadInput: it is none, or has a password, which would be written down.
    """
    if not url:
        return url
    host = url.partition("://")[2].partition("/")[0]
    if "@" in host:
        raise BadInput(f"{name}: a name or password in an address is written down; --key-variable keeps a key out")
    check_holds(name, url, url.startswith(("http://", "https://")) and bool(host), "an address, http(s)://HOST")
    return url.rstrip("/")


@dataclass(frozen=True, kw_only=True)
class EndpointFlags(Configuration):
    """Whom to ask, and for what.

    Raises:
        BadInput: a field is out of its range; the sentence names it.
    """

    out: str | None = setting(
        None, "folder of the results (needed); running again with the same goes on where it ended", "DIR"
    )
    endpoint: str = setting("", "OpenAI-compatible endpoint, such as http://127.0.0.1:8000/v1 (needed)", "URL")
    model: str = setting("", "the model that answers, as the endpoint calls it (needed)", "NAME")
    key_variable: str = setting("OPENAI_API_KEY", "environment variable that holds the endpoint's key", "NAME")
    scores: tuple[str, ...] = setting(
        ("std",), "std: likelihood of the answer; con: share of samples that agree with it", "NAME"
    )
    samples: int = setting(5, "sampled answers for con", "N")
    entail: str = setting(
        "exact",
        "whether a sample agrees: exact (the same text), llm (a verdict), llm-p (how likely a yes is)",
        "NAME",
    )
    judge: str = setting(
        "exact", "who says whether an answer is right: exact (match of texts), llm (a verdict), both", "NAME"
    )
    judge_endpoint: str | None = setting(None, "endpoint of the verdicts (default: that of the answers)", "URL")
    judge_model: str | None = setting(None, "model of the verdicts (default: that of the answers)", "NAME")
    judge_key_variable: str | None = setting(None, "environment variable that holds that endpoint's key", "NAME")
    temperature: float = setting(1.0, "of the samples; answers and verdicts have 0", "X")
    max_tokens: int = setting(64, "tokens of an answer, at most", "N")
    seed: int = setting(0, "of the samples, and of what is drawn here", "N")
    extra: str = setting("{}", "further fields of each request, as JSON; null takes one away", "JSON")
    prompt: tuple[str, ...] = setting((), "files to use as prompts, such as judge=my-judge.txt", "ROLE=FILE")
    concurrent: int = setting(16, "calls at once", "N")
    per_minute: int | None = setting(None, "calls a minute, at most", "N")
    retries: int = setting(6, "of a call that is refused for now, breaks off or takes too long", "N")
    timeout: float = setting(60.0, "seconds of a try", "X")
    price: tuple[float, ...] = setting(
        (), "dollars for a million tokens of prompts, and of replies (default: as sold)", "X"
    )
    budget: float | None = setting(None, "dollars that the folder may cost, after which nothing more is asked", "X")
    dry_run: bool = setting(False, "say how many calls it takes and what they cost, and ask nothing")
    progress: str = setting("bar", f"what to report on stderr: {', '.join(MODES)}", "MODE")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_known("scores", self.scores, SCORES)
        check_known("entail", (self.entail,), ENTAIL)
        check_known("judge", (self.judge,), JUDGES)
        check_known("progress", (self.progress,), MODES)
        for name in ("samples", "max_tokens", "concurrent", "per_minute"):
            check_count(name, getattr(self, name))
        check_count("retries", self.retries, 0)
        check_not_negative("temperature", self.temperature)
        for name in ("timeout", "budget"):
            check_positive(name, getattr(self, name))
        check_holds("seed", self.seed, 0 <= self.seed < 2**31, "an integer from 0 to 2**31 - 1")
        good = len(self.price) in (0, 2) and all(0 <= x < math.inf for x in self.price)
        check_holds("price", self.price, good, "two finite numbers >= 0")
        for name in ("key_variable", "judge_key_variable"):
            if not (getattr(self, name) or "NONE").isidentifier():  # it may be the key itself, and is not shown
                raise BadInput(f"{name}: it must be the name of an environment variable")
        for name in ("endpoint", "judge_endpoint"):
            object.__setattr__(self, name, _address(name, getattr(self, name)))
        self.more, self.files  # noqa: B018  # what is in them is checked here

    @property
    def more(self) -> dict[str, Any]:
        """The further fields of each request.

        Raises:
            BadInput: they are no JSON object.
        """
        try:
            found = json.loads(self.extra)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"extra: {self.extra!r} found; it must be a JSON object ({error})") from error
        check_holds("extra", self.extra, isinstance(found, dict), "a JSON object")
        for name in found:
            if name in OWN and not (name == "seed" and found[name] is None):
                raise BadInput(f"extra: {name} found; it is set here, and cannot be set from outside")
        return dict(found)

    @property
    def files(self) -> dict[str, Path]:
        """The files of prompts, by role.

        Raises:
            BadInput: one has no role.
        """
        each = [text.partition("=") for text in self.prompt]
        for text, (_, equals, path) in zip(self.prompt, each, strict=True):
            check_holds("prompt", text, bool(equals and path), "ROLE=FILE")
        return {role: Path(path) for role, _, path in each}

    def check_endpoint(self) -> None:
        """Check that there is somebody to ask.

        Raises:
            BadInput: there is none, or what asks is not installed.
        """
        for name in ("out", "endpoint", "model"):
            if not getattr(self, name):
                raise BadInput(f"{name}: none given; --{name} is needed")
        missing = [name for name in NEEDED if find_spec(name) is None]
        if missing:
            raise BadInput(f"{', '.join(missing)}: not installed; language models need: pip install 'exaul[llm]'")
