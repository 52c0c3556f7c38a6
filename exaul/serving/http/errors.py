"""Errors of the service in OpenAI's form, and the headers of every reply."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from starlette.responses import JSONResponse

ERRORS = {  # by status: type, and meaning for the description of the API
    400: ("invalid_request_error", "A field is invalid; `param` names it."),
    401: ("authentication_error", "A valid bearer token is needed."),
    403: ("permission_error", "The token lacks the scope."),
    404: ("not_found_error", "No such path or key."),
    409: ("conflict_error", "The id was decided with another score or key."),
    413: ("invalid_request_error", "The body is too large."),
    415: ("invalid_request_error", "The body has another Content-Type than application/json."),
    429: ("rate_limit_error", "Too many requests."),
    503: ("server_error", "The journal cannot be used, or too much is open; repeat the request later."),
}
HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}  # of errors, by status
SECURITY_HEADERS = {  # of every reply; one that the application sets stays as it is
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
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
    return {status: {"model": ErrorBody, "description": ERRORS[status][1]} for status in statuses}


def error_body(status: int, message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Return the body of an error: one sentence, the field that it is about, and a code."""
    kind = ERRORS[status if status in ERRORS else 400 if status < 500 else 503][0]
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_reply(
    status: int, message: str, param: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return the reply with an error, as ``error_body``."""
    every = SECURITY_HEADERS | HEADERS.get(status, {}) | dict(headers or {})
    return JSONResponse(error_body(status, message, param), status, every)
