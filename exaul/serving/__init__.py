"""Learners in a user's program: one in memory, one per key in a file with a journal, or behind HTTP.

``app(path, ...)`` returns the service as an ASGI application (``exaul.serving.http.application``).
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("exaul.serving.http.application").app  # imported when used: most programs have no FastAPI
