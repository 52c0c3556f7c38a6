"""``exaul serve``: decide and learn over HTTP, for programs in any language."""

import asyncio
import logging
import signal
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from typing import Any

from exaul.commands.flags import Command, fields_given
from exaul.engine.checks import check_installed
from exaul.llm.scores import column_of
from exaul.serving.configuration import SharedConfiguration
from exaul.serving.entries import DECIDE, START
from exaul.serving.http.settings import LOOPBACK_HOSTS, GatewayFlags, ServeFlags, logger, read_keys

SERVER_FIELDS = "state", "host", "port", "keys"  # the other fields are arguments of ``app``, without ``log_``
MOST_LISTED = 20  # keys of the file, at most, whose start and target are read and printed
STARTUP_FAILURE = 3  # exit status, as uvicorn's
SHADOW_MODE = "shadow mode: every answer is shown, and no key learns; one that has decided before stays as it was"
EXAMPLES = """examples:
  {exaul} serve --state state.sqlite --warm-start LOG.csv --upstream http://127.0.0.1:8000/v1
  {exaul} serve --state state.sqlite --shadow --audit 0.02"""
PACKAGES = "fastapi", "uvicorn", "prometheus_client", "httpx2"


def main(arguments: Mapping[str, Any]) -> int:
    """Serve until the process is interrupted or terminated."""
    check_installed(PACKAGES, "the service needs: uv run --extra serve exaul serve")
    config = ServeFlags(**fields_given(ServeFlags, arguments))
    gateway_flags = GatewayFlags(**given) if (given := fields_given(GatewayFlags, arguments)) else None
    from prometheus_client import disable_created_metrics

    from exaul.serving.http.application import app
    from exaul.serving.http.gateway import add_gateway, ask_model
    from exaul.serving.http.guard import add_request_id
    from exaul.serving.http.server import BoundedServer, address_of, listen

    handler = logging.StreamHandler()  # of warnings and errors, to stderr
    handler.addFilter(add_request_id)
    lines = logging.Formatter("exaul: %(asctime)sZ [%(request_id)s] %(message)s")
    lines.converter = time.gmtime
    handler.setFormatter(lines)
    logging.basicConfig(handlers=[handler])
    disable_created_metrics()  # which no alert and no panel reads
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server handles it
    learner_fields = fields_given(SharedConfiguration, arguments)
    hosts = LOOPBACK_HOSTS | {config.host} if config.tokens is None else None
    with listen(config.host, config.port) as listener:  # first, so that a port in use leaves no file
        fields = {name.removeprefix("log_"): x for name, x in asdict(config).items() if name not in SERVER_FIELDS}
        application = app(config.state, hosts=hosts, keys=read_keys(config.keys), **fields, **learner_fields)
        with closing(application.state.service) as service:
            alpha, audit = (service.configuration[name] for name in ("alpha", "audit"))
            whose = " for new keys" if len(service.alphas(MOST_LISTED)) > 1 else ""
            settings = {"alpha": f"{alpha}{whose}", "audit": audit or "none"}
            if gateway_flags is not None:
                add_gateway(application, gateway_flags)
                column, score, earlier = config.log_score, gateway_flags.score, service.noted("score")
                settings |= {"upstream": gateway_flags.upstream, "score": score}
                is_other = column.startswith("score_") and column != column_of(score)  # which may be right
                of_keys = (service.latest_entries(1, START, DECIDE, key=key) for key in service.all_keys())
                if is_other and (earlier != score or any(x.kind == START for latest in of_keys for x in latest)):
                    logger.warning(
                        f"the scores of the log are {column}, and those of the gateway {score}: if they are of two "
                        "kinds, far too much or too little is withheld (docs/service.md, Before your users come)"
                    )
                if earlier not in (None, score):
                    logger.warning(
                        f"--score was {earlier} so far, and is {score} now: go back, or begin each key anew with a "
                        "log of the new one (exaul journal start); if that is done, go on"
                    )
            if audit and config.tokens is None:
                logger.warning("--audit without --tokens: any thumb on an audited answer is its verdict")
            latest = service.latest_entries(1)
            count = latest[0].seq if latest else 0
            logger.warning(f"{config.state}: {count:,} entries, keys: {service.count_keys():,}")
            for line in [SHADOW_MODE] if config.shadow else service.describe_keys(MOST_LISTED):
                logger.warning(line)
            tokens = application.state.tokens

            def announce() -> None:
                listed = ", ".join(f"{name} = {x}" for name, x in settings.items())
                print(f"serving with {listed} at {address_of(listener)}", flush=True)
                if gateway_flags is not None:  # while it serves: a model may hang, and clients may ask another
                    application.state.first_question = asyncio.create_task(ask_model(gateway_flags, service))

            server = BoundedServer(application, announce, on_hangup=lambda: tokens and tokens.reload())
            server.run(sockets=[listener])
    if server.started:
        logger.warning(f"stopped: all confirmed decisions and ratings are in {config.state}")
    return 0 if server.started else STARTUP_FAILURE


COMMANDS = {"serve": Command((ServeFlags, GatewayFlags, SharedConfiguration), main, EXAMPLES)}
