"""Bearer tokens and what each of them may do."""

import hmac
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from exaul.engine.checks import BadInput

SCOPES = "decide", "feedback", "read"
VARIABLE = "env:"  # prefix of the name of an environment variable
log = logging.getLogger("exaul.serving")
_TOKEN = re.compile(r"[!-~]{16,512}")


class Tokens:
    """The tokens of a service, with their scopes."""

    def __init__(self, scopes: Mapping[str, frozenset[str]]) -> None:
        """Take the scopes of each token."""
        self._scopes = {token.encode(): each for token, each in scopes.items()}

    @classmethod
    def read(cls, source: str) -> Self:
        """Read tokens from a file, or from an environment variable (``env:NAME``).

        Each line has scopes and a token, such as ``decide,feedback 3f9c...``. Empty lines and those that begin with
        ``#`` are skipped.

        Raises:
            BadInput: the source is missing, or a line is invalid. The message never has a token.
        """
        scopes: dict[str, frozenset[str]] = {}
        for number, line in enumerate(_text_of(source).splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            where, parts = f"{source}, line {number}", line.split()
            if len(parts) != 2:
                raise BadInput(f"{where}: it must have scopes and a token, such as: decide,feedback TOKEN")
            names, token = parts
            if not _TOKEN.fullmatch(token):
                raise BadInput(f"{where}: the token must have 16 to 512 ASCII characters")
            if token in scopes:
                raise BadInput(f"{where}: the token occurs twice")
            scopes[token] = frozenset(names.split(","))
            if not scopes[token] <= set(SCOPES):  # the first word may be the token: never print it
                raise BadInput(f"{where}: the scopes must be of {', '.join(SCOPES)}")
        if not scopes:
            raise BadInput(f"{source}: no token; at least one is needed")
        return cls(scopes)

    def scopes_of(self, token: str) -> frozenset[str] | None:
        """Return the scopes of a token, None if it is unknown, in a time that does not depend on it."""
        given, matching = token.encode(errors="replace"), None
        for known, scopes in self._scopes.items():
            if hmac.compare_digest(known, given):
                matching = scopes
        return matching


def _text_of(source: str) -> str:
    if source.startswith(VARIABLE):
        name = source.removeprefix(VARIABLE)
        if name not in os.environ:
            raise BadInput(f"tokens: the environment variable {name} is not set")
        return os.environ[name]
    try:
        path = Path(source)
        if path.stat().st_mode & 0o007:
            log.warning("%s: all users of this machine can read the tokens; chmod 600 changes that", source)
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{source}: it must be UTF-8") from error
    except OSError as error:
        # a line with scopes and a token, given instead of a file: never print it
        name = "tokens: the file" if source.partition(" ")[0].split(",")[0] in SCOPES else f"{source}:"
        raise BadInput(f"{name} cannot be read ({error.strerror})") from error
