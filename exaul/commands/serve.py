"""``exaul serve``: decide and learn over HTTP, for programs in any language."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from exaul.commands.flags import Command, fields_given
from exaul.engine.checks import BadInput
from exaul.serving.abstainer import AbstainersConfiguration
from exaul.serving.http.gateway_flags import GatewayFlags
from exaul.serving.settings import ServeFlags

NEEDED = "fastapi", "uvicorn", "prometheus_client", "aiohttp"


def main(given: Mapping[str, Any]) -> int:
    """Serve until the process is interrupted or terminated."""
    config = ServeFlags(**fields_given(ServeFlags, given))
    of_gateway = fields_given(GatewayFlags, given)
    gateway_flags = GatewayFlags(**of_gateway) if of_gateway else None
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise BadInput(f"{', '.join(missing)}: not installed; the service needs: uv run --extra serve exaul serve")
    from exaul.serving.http.application import app
    from exaul.serving.http.limits import LOOPBACK_HOSTS
    from exaul.serving.http.server import serve

    configuration = fields_given(AbstainersConfiguration, given)
    hosts = LOOPBACK_HOSTS | {config.host} if config.tokens is None else None
    application = app(config.state, tokens=config.tokens, on_error=config.on_error, hosts=hosts, **configuration)
    try:
        if gateway_flags is not None:
            from exaul.serving.http.gateway import add_gateway

            add_gateway(application, gateway_flags)
        serve(
            application,
            config.host,
            config.port,
            on_started=lambda address: print(f"serving at {address}", flush=True),
        )
    finally:
        application.state.service.close()
    return 0


COMMANDS = {"serve": Command((ServeFlags, GatewayFlags, AbstainersConfiguration), main)}
