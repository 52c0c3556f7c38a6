"""``exaul serve``: decide and learn over HTTP, for programs in any language."""

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from exaul.commands.flags import Command, fields_given
from exaul.engine.checks import check_installed, quote
from exaul.kernels.learners.aci_rank import SHORT_LOG
from exaul.llm.scores import column_of
from exaul.serving.configuration import SharedConfiguration
from exaul.serving.http.settings import LOOPBACK_HOSTS, GatewayFlags, ServeFlags, read_keys

SERVER_FIELDS = "state", "host", "port", "keys"  # the other fields are arguments of ``app``, without ``log_``
BEGUN = "it began with another log or alpha, and keeps what it has learned; exaul journal start begins it anew"
MOST_KEYS = 20  # keys of the file, at most, whose start or alpha is printed
STARTUP_FAILURE = 3  # exit status, as uvicorn's
COLD = "without a log, most answers are withheld at first; --warm-start LOG, or --shadow at first, avoids that"
SHADOW_MODE = "shadow mode: every answer is shown, and no key learns; one that has decided before stays as it was"
PACKAGES = "fastapi", "uvicorn", "prometheus_client", "httpx2"


def main(arguments: Mapping[str, Any]) -> int:
    """Serve until the process is interrupted or terminated."""
    check_installed(PACKAGES, "the service needs: uv run --extra serve exaul serve")
    config = ServeFlags(**fields_given(ServeFlags, arguments))
    gateway_fields = fields_given(GatewayFlags, arguments)
    gateway_flags = GatewayFlags(**gateway_fields) if gateway_fields else None
    from exaul.serving.http.application import app
    from exaul.serving.http.gateway import add_gateway, ask_models
    from exaul.serving.http.server import BoundedServer, address_of, listen

    logging.basicConfig(format="exaul: %(message)s")  # warnings and errors, to stderr
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server handles it
    learner_fields = fields_given(SharedConfiguration, arguments)
    hosts = LOOPBACK_HOSTS | {config.host} if config.tokens is None else None
    is_new = not Path(config.state).exists()
    with listen(config.host, config.port) as listener:  # first, so that a port in use leaves no file
        fields = {name.removeprefix("log_"): x for name, x in asdict(config).items() if name not in SERVER_FIELDS}
        application = app(config.state, hosts=hosts, keys=read_keys(config.keys), **fields, **learner_fields)
        try:
            service, texts = application.state.service, [SHADOW_MODE] if config.shadow else list[str]()
            alpha, audit = (service.configuration[name] for name in ("alpha", "audit"))
            if is_new:
                audits = "no audits" if audit is None else f"audits of {audit:g}, the only feedback that is learned"
                texts.append(f"{config.state} is a new file, and keeps for ever: alpha = {alpha:g}, {audits}")
            for key, (observed, needed) in service.verdicts(MOST_KEYS).items() if config.shadow else ():
                progress = f"{observed:,} verdicts so far, {needed} needed ({SHORT_LOG} / alpha)"
                texts.append(f"key {quote(key)}: {progress}")
            beginnings = {} if config.shadow else service.beginnings(MOST_KEYS)
            for key, started in beginnings.items():
                name = f"key {quote(key)}" if key or started is None else "new keys"
                texts.append(f"{name}: {BEGUN if started is None else started or COLD}")
            if gateway_flags is not None:
                add_gateway(application, gateway_flags)
                texts += score_warnings(gateway_flags.score, config, service.note("score", gateway_flags.score))
            print("".join(f"exaul: {text}\n" for text in texts), end="", file=sys.stderr, flush=True)
            tokens = application.state.tokens
            key_alphas = {key: x for key, x in service.alphas(MOST_KEYS).items() if x != alpha}

            def announce() -> None:
                exceptions = ", ".join(f"key {quote(key)}: {x:g}" for key, x in key_alphas.items())
                shown_alpha = f"{alpha:g} ({exceptions})" if exceptions else f"{alpha:g}"
                print(f"serving with alpha = {shown_alpha} at {address_of(listener)}", flush=True)
                if gateway_flags is not None:  # while it serves: a model may hang, and clients may ask another
                    application.state.first_questions = asyncio.create_task(ask_models(gateway_flags))

            server = BoundedServer(application, announce, on_hangup=lambda: tokens and tokens.reload())
            server.run(sockets=[listener])
        finally:
            application.state.service.close()
    return 0 if server.started else STARTUP_FAILURE


def score_warnings(score: str, config: ServeFlags, earlier: str | None) -> list[str]:
    """Return warnings if the gateway's scores are of another kind than those of the log or the ``earlier`` ones."""
    texts, column = [], config.log_score
    if column.startswith("score_") and column != column_of(score):
        texts.append(f"the scores of the log are {column}, those of the gateway {score}: they must be of one kind")
    if earlier not in (None, score):
        texts.append(f"--score was {earlier} so far, and is {score} now: begin each key anew (exaul journal start)")
    return texts


COMMANDS = {"serve": Command((ServeFlags, GatewayFlags, SharedConfiguration), main)}
