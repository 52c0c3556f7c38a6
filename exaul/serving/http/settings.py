"""The flags of ``exaul serve``, and bearer tokens with their scopes."""

import hmac
import ipaddress
import json
import logging
import os
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from exaul.engine.checks import (
    BadInput,
    Configuration,
    check_holds,
    check_known,
    check_positive,
    join_lines,
    meant,
    quote,
    setting,
)
from exaul.llm.endpoint import as_address, check_variable
from exaul.llm.scores import scorer_of

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})  # in the Host header
WITHHELD_FORMS = "auto", "text", "refusal", "json", "error"  # forms of a withheld answer
RULES = "answer", "abstain", "error"  # for what is not decided
KEY_SOURCES = "fixed", "token", "model", "header"
MOST_SAMPLES = 64
SCOPES = "ask", "decide", "feedback", "read", "metrics", "keys", "audit", "pass"
FALLBACK = "/fallback"  # after the name of a key: the learner of the second model's answers
VARIABLE_PREFIX = "env:"  # prefix of the name of an environment variable
logger = logging.getLogger("exaul.serving")
_TOKEN = re.compile(r"[!-~]{16,512}")


class ServeFlags(Configuration):
    """Where the service listens and what it keeps. Every field is a flag of ``exaul serve``.

    ``app`` checks the fields that are its arguments.

    Raises:
        BadInput: another field is out of its range; the message names it.
    """

    state: str = setting("", "SQLite file of all decisions (required); created if it is missing", "FILE")
    host: str = setting("127.0.0.1", "address to listen on; another than loopback needs --tokens", "HOST")
    port: int = setting(8321, "port to listen on; 0: any free one", "N")
    tokens: str | None = setting(
        None, "bearer tokens: a file with lines 'decide,feedback TOKEN', or env:NAME", "FILE"
    )
    on_error: str = setting(
        "refuse", "reply if the file cannot be written: refuse (status 503), abstain or answer", "NAME"
    )
    warm_start: str | None = setting(
        None,
        "log from which each new key starts: score, and correct or error; key:NAME: answers of that key",
        "LOG",
    )
    log_score: str = setting("score", "column of the scores in these logs", "COL")
    log_correct: str | None = setting(None, "column where 1 is right (default: correct or error)", "COL")
    log_error: str | None = setting(None, "column where 1 is wrong, in place of it", "COL")
    log_drop_missing: bool = setting(False, "leave out rows of these logs with an empty score or label")
    keys: str | None = setting(None, "TOML file with the alpha and warm_start of some keys: [NAME]", "FILE")
    shadow: bool = setting(False, "show every answer, and keep scores and feedback for a later start")
    texts: str | None = setting(
        None, "texts to keep for audits: none, audited or all (default: audited, with --audit)", "NAME"
    )
    retain_days: float = setting(30.0, "days to keep a text after its verdict", "N")
    accept_loss: bool = setting(False, "go on with a file that may lack its latest entries")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.state:
            raise BadInput("state: missing; FILE keeps all decisions, such as state.sqlite")
        check_holds("port", self.port, 0 <= self.port < 2**16, "from 0 to 65535")
        if self.tokens is None and not is_loopback(self.host):
            raise BadInput(f"host: {self.host!r} found; without --tokens it must be a loopback address")


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
            raise BadInput(
                "upstream: missing; --score and other gateway flags need it; --log-score names a column of the log"
            )
        object.__setattr__(self, "upstream", as_address("upstream", self.upstream))
        for flag in ("upstream_key_variable", "fallback_key_variable"):
            check_variable(flag, getattr(self, flag), is_set=True)
        if not self.fallback_target[1] and self.fallback_key_variable:
            raise BadInput("fallback: an address is missing; --fallback-key-variable requires one")
        check_positive("upstream_timeout", self.upstream_timeout)
        check_holds("samples", self.samples, 1 <= self.samples <= MOST_SAMPLES, f"from 1 to {MOST_SAMPLES}")
        try:
            scorer_of(self.score)
        except BadInput as error:
            raise BadInput(f"{error}; --log-score names a column of the log") from None
        rules = {"undecided": RULES, "tools": RULES[:2], "without_score": RULES}
        for name, words in ({"withheld": WITHHELD_FORMS, "key": KEY_SOURCES} | rules).items():
            check_known(name, (getattr(self, name),), words)
        check_holds("abstention", self.abstention, bool(self.abstention.strip()), "a text")
        if self.withheld == "json" and self.withheld_json is None:
            raise BadInput("withheld_json: missing; --withheld json requires it")
        try:
            self.withheld_value  # noqa: B018  # it is checked
        except ValueError:
            raise BadInput(f"withheld_json: {quote(self.withheld_json)} found; it must be JSON") from None
        for flag, names in (("models", " ".join(self.models)), ("pass_fields", " ".join(self.pass_fields))):
            check_holds(flag, names, "," not in names, "names without a comma, and with spaces between")
        if self.key == "model" and not self.models:
            raise BadInput(
                "models: missing; --key model requires them, since each is a key with a bound of its own"
            )

    @property
    def fallback_target(self) -> tuple[str, str]:
        """The second model and the address of its endpoint; empty: no second model, or the endpoint of the first.

        An address without a model is a program's, which gets withheld answers. ``BadInput``: it is invalid.
        """
        fallback = self.fallback or ""
        if fallback.startswith(("http://", "https://")):
            return "", as_address("fallback", fallback)
        name, _, address = fallback.partition("@http")
        is_name = self.fallback is None or (name != "" and "://" not in name)
        check_holds("fallback", self.fallback, is_name, "NAME, NAME@URL with https://..., or https://...")
        return name, as_address("fallback", f"http{address}") if address else ""

    @property
    def withheld_value(self) -> Any:
        """The value of ``withheld_json``; None if there is none. ``ValueError``: it is not JSON."""
        return None if self.withheld_json is None else json.loads(self.withheld_json)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_keys(path: str | None) -> dict[str, dict[str, Any]]:
    """Return the ``keys`` of ``Abstainers`` in a TOML file. Raise BadInput unless it can be read."""
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            keys = tomllib.load(file)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read ({join_lines(str(error))})") from error
    for name, table in keys.items():
        check_holds(f"{path}: {quote(name)}", table, isinstance(table, dict), "a table: [NAME]")
    return keys


class Grant(NamedTuple):
    """What a token allows."""

    scopes: frozenset[str]
    key: str | None = None  # of all its requests to the gateway, with ``--key token``; no other is decided or rated


class Tokens:
    """The tokens of a file, or of an environment variable (``env:NAME``), with their scopes.

    Each line has scopes and a token, such as ``decide,feedback 3f9c...``, and perhaps a key.
    Empty lines and those that begin with ``#`` are skipped.
    """

    def __init__(self, source: str) -> None:
        """Read the tokens.

        Raises:
            BadInput: the source is missing, or a line is invalid. The message never has a token.
        """
        self._source, self._grants = source, _read_tokens(source)

    def reload(self) -> None:
        """Read the tokens again. If that is not possible, the old ones stay, and the log says why."""
        try:
            self._grants = _read_tokens(self._source)
            logger.warning("%d tokens are read again", len(self._grants))
        except BadInput as error:
            logger.error("the tokens stay as they were: %s", error)

    def grant_of(self, token: str) -> Grant:
        """Return what a token allows, nothing if it is unknown, in a time that does not depend on it."""
        token_bytes, matching = token.encode(errors="replace"), Grant(frozenset())
        for known_bytes, grant in self._grants.items():
            if hmac.compare_digest(known_bytes, token_bytes):
                matching = grant
        return matching


def _read_tokens(source: str) -> dict[bytes, Grant]:
    tokens: dict[bytes, Grant] = {}
    for number, line in enumerate(_read_source(source).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        where, parts = f"{source}, line {number}", line.split()
        if len(parts) not in (2, 3):
            raise BadInput(f"{where}: it must have scopes, a token and perhaps a key: decide,feedback TOKEN KEY")
        names, token, *key = parts
        if not _TOKEN.fullmatch(token):
            raise BadInput(f"{where}: the token must have 16 to 512 ASCII characters")
        if token.encode() in tokens:
            raise BadInput(f"{where}: the token occurs twice")
        scopes = frozenset(names.split(","))
        tokens[token.encode()] = Grant(scopes, *key)
        if not scopes <= set(SCOPES):  # the first word may be the token: never print it
            raise BadInput(f"{where}: the scopes must be of {', '.join(SCOPES)}{meant(scopes, SCOPES)}")
        if key and (scopes & {"audit", "read"} or key[0].endswith(FALLBACK)):
            raise BadInput(f"{where}: a key is not for the scopes audit and read, and must not end in {FALLBACK}")
    if not tokens:
        raise BadInput(f"{source}: no token; at least one is needed")
    return tokens


def _read_source(source: str) -> str:
    if source.startswith(VARIABLE_PREFIX):
        name = source.removeprefix(VARIABLE_PREFIX)
        if name not in os.environ:
            raise BadInput(f"tokens: the environment variable {name} is not set")
        return os.environ[name]
    try:
        path = Path(source)
        if path.stat().st_mode & 0o007:
            logger.warning("%s: all users of this machine can read the tokens; chmod 600 changes that", source)
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{source}: it must be UTF-8") from error
    except OSError as error:
        # a line with scopes and a token, given instead of a file: never print it
        name = "tokens: the file" if source.partition(" ")[0].split(",")[0] in SCOPES else f"{source}:"
        raise BadInput(f"{name} cannot be read ({error.strerror})") from error
