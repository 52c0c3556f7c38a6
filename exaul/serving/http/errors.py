"""Errors of the service in OpenAI's form, and the headers of every reply."""

import json
from typing import Any

TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
RETRY_SECONDS = 1  # Retry-After of a 503

SECURITY_HEADERS = {  # of every reply; one that the application sets stays as it is
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
}


def error_content(status: int, message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Return the body of an error as a dictionary: one sentence, the field that it is about, and a code."""
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_reply(status: int, message: str) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return the headers and the body of an error after which the connection is closed."""
    body = json.dumps(error_content(status, message)).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    if status == 503:
        headers.append((b"retry-after", str(RETRY_SECONDS).encode()))
    return headers, body
