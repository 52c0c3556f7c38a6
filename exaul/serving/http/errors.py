"""Errors of the service in OpenAI's form, and the headers of every reply."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
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
MEANINGS = {  # what each status means, for the description of the API
    400: "A field is invalid; `param` names it.",
    401: "A valid bearer token is needed.",
    403: "The token lacks the scope.",
    404: "No such path or key.",
    409: "The id was decided with another score or key.",
    413: "The body is too large.",
    415: "The body has another Content-Type than application/json.",
    503: "The journal cannot be used, or too much is open; repeat the request later.",
}


class ErrorDetail(BaseModel):
    """One sentence, and the field that it is about."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The form of all errors."""

    error: ErrorDetail


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors of a route for the description of the API."""
    return {status: {"model": ErrorBody, "description": MEANINGS[status]} for status in statuses}


def error_body(status: int, message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Return the body of an error: one sentence, the field that it is about, and a code."""
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_reply(
    status: int,
    message: str,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return the reply with an error, as ``error_body``."""
    retry = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else {}
    return JSONResponse(error_body(status, message, param, code), status, retry | dict(headers or {}))
