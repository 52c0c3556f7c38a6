"""``exaul serve``: decide and learn over HTTP, for programs in any language."""

import asyncio
import ipaddress
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from exaul.commands.flags import Command, fields_given
from exaul.engine.checks import BadInput, Configuration, check_holds, check_known, setting
from exaul.serving.abstainer import AbstainersConfiguration
from exaul.serving.http.gateway_flags import GatewayFlags
from exaul.serving.service import ON_ERROR

NEEDED = "fastapi", "uvicorn", "prometheus_client", "aiohttp"


@dataclass(frozen=True, kw_only=True)
class Serve(Configuration):
    """Where the service listens and what it keeps. Every field is a flag of ``exaul serve``."""

    state: str = setting("", "SQLite file of all decisions (required); created if it is missing", "FILE")
    host: str = setting("127.0.0.1", "address to listen on; another than loopback needs --tokens", "HOST")
    port: int = setting(8321, "port to listen on; 0: any free one", "N")
    tokens: str | None = setting(
        None, "bearer tokens: a file with lines 'decide,feedback,read TOKEN', or env:NAME", "FILE"
    )
    on_error: str = setting(
        "refuse", "reply if the file cannot be written: refuse (status 503), abstain or answer", "NAME"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.state:
            raise BadInput("state: missing; --state is required")
        check_holds("port", self.port, 0 <= self.port < 2**16, "from 0 to 65535")
        check_known("on_error", (self.on_error,), ON_ERROR)
        if self.tokens is None and not is_loopback(self.host):
            raise BadInput(f"host: {self.host!r} found; without --tokens it must be a loopback address")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def main(given: Mapping[str, Any]) -> int:
    """Serve until the process is interrupted or terminated."""
    config = Serve(**fields_given(Serve, given))
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
            from exaul.serving.http.gateway import add_gateway, warning_of

            add_gateway(application, gateway_flags)
            warning = asyncio.run(warning_of(gateway_flags))
            if warning is not None:  # it may be another model that clients ask, and so serving goes on
                print(f"exaul: {warning}", file=sys.stderr, flush=True)
        serve(
            application,
            config.host,
            config.port,
            on_started=lambda address: print(f"serving at {address}", flush=True),
            on_stopping=lambda: setattr(application.state, "stopping", True),
        )
    finally:
        application.state.service.close()
    return 0


COMMANDS = {"serve": Command((Serve, GatewayFlags, AbstainersConfiguration), main)}
