"""What a person sets of the service: the flags of ``exaul serve``."""

import ipaddress
from dataclasses import dataclass

from exaul.engine.checks import BadInput, Configuration, check_holds, check_known, setting

ON_ERROR = "refuse", "abstain", "answer"  # what a client gets if the file cannot be used


@dataclass(frozen=True, kw_only=True)
class ServeFlags(Configuration):
    """Where the service listens and what it keeps. Every field is a flag of ``exaul serve``.

    Raises:
        BadInput: a field is out of its range; the message names it.
    """

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
