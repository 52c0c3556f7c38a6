"""Errors of the service in OpenAI's form, and the headers of every reply."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

TYPES = {  # by status
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}
RETRY_SECONDS = 1  # Retry-After of a 503

SECURITY_HEADERS = {  # of every reply; one that the application sets stays as it is
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
}


def error_reply(
    status: int,
    message: str,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return the reply with an error: one sentence, the field that it is about, and a code."""
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    content: dict[str, Any] = {"message": message, "type": kind, "param": param, "code": code}
    retry = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else {}
    return JSONResponse({"error": content}, status, retry | dict(headers or {}))
