"""The one form of all errors, which is that of OpenAI."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from starlette.responses import JSONResponse

TYPES = {  # by status
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    421: "invalid_request_error",
    431: "invalid_request_error",
    503: "service_unavailable_error",
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
    """Return the body of an error: one sentence, and the field that it is about."""
    kind = TYPES.get(status, "api_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_reply(
    status: int,
    message: str,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return the reply with an error."""
    return JSONResponse(error_body(status, message, param, code), status, headers)
