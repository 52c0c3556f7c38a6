"""Errors of the service in OpenAI's form, and the headers of every reply."""

import json
from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException as StarletteException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from exaul.engine.checks import BadInput, join_lines, quote, shorten
from exaul.serving.http.settings import logger

ERRORS = {  # by status: type, and meaning for the description of the API
    400: ("invalid_request_error", "A field is invalid; `param` names it."),
    401: ("authentication_error", "A valid bearer token is needed."),
    403: ("permission_error", "The token lacks the scope."),
    404: ("not_found_error", "No such path or key."),
    409: ("conflict_error", "The id was decided with another score or key, or the ref was used before."),
    413: ("invalid_request_error", "The body is too large."),
    415: ("invalid_request_error", "The body has another Content-Type than application/json."),
    429: ("rate_limit_error", "Too many requests."),
    502: ("server_error", "The model's reply cannot be used or decided."),
    503: ("server_error", "The journal cannot be used, or too much is open; repeat the request later."),
    504: ("server_error", "The model did not reply in time."),
}
HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}  # of errors, by status
SENTENCES = {  # for Starlette's and FastAPI's own words
    "Not Found": "no such path; a client's address ends in /v1, and /openapi.json lists all paths",
    "Method Not Allowed": "the path does not allow this method",
    "There was an error parsing the body": "the body is not JSON",
}
NO_GATEWAY = "this service has no --upstream; it decides by /v1/decide"
FINAL = 409, 502, 503, 504  # statuses of the gateway's own errors that clients of OpenAI would retry
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


def error_body(status: int, message: str, param: str | None = None) -> dict[str, Any]:
    """Return the body of an error: one sentence, and the field that it is about."""
    kind = ERRORS[status if status in ERRORS else 400 if status < 500 else 503][0]
    return {"error": {"message": message, "type": kind, "param": param, "code": None}}


def error_reply(
    status: int, message: str, param: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return the reply with an error, as ``error_body``."""
    all_headers = SECURITY_HEADERS | HEADERS.get(status, {}) | dict(headers or {})
    return JSONResponse(error_body(status, message, param), status, all_headers)


class RequestFailed(Exception):
    """A request whose reply is an error."""

    def __init__(
        self, status: int, message: str, wait: str = "", final: bool = True, /, report: Any = None, **fields: Any
    ) -> None:
        """Store the reply.

        Args:
            status: of the reply.
            message: one sentence.
            wait: the header Retry-After; there is none if it is empty.
            final: a retry would only ask the upstream again, so the reply advises against it.
            report: the field ``exaul`` beside the error; there is none if it is None.
            fields: replace those of ``error_body``.
        """
        super().__init__(message)
        self.status, self.body = status, error_body(status, message)
        self.body["error"] |= fields
        self.body |= {} if report is None else {"exaul": report}
        self.headers = {"Retry-After": wait} if wait else {}
        self.headers |= {"x-should-retry": "false"} if final and status in FINAL else {}


HANDLED = StarletteException, RequestValidationError, BadInput, OSError, RecursionError, RequestFailed


async def reply_to_error(request: Request, error: Exception) -> Response:
    """Return the reply with an error of a request."""
    match error:
        case StarletteException(detail="Not Found") if request.url.path.endswith("/v1/chat/completions"):
            return error_reply(404, NO_GATEWAY)
        case StarletteException():
            return error_reply(error.status_code, SENTENCES.get(error.detail, error.detail), headers=error.headers)
        case RequestValidationError():
            return error_reply(400, *_sentence_of(error.errors()[0]))
        case BadInput():
            return error_reply(400, str(error), str(error).partition(":")[0])
        case RequestFailed():  # by json, since a text of the endpoint may have half a surrogate pair
            return Response(json.dumps(error.body), error.status, error.headers, "application/json")
        case RecursionError():
            return error_reply(400, "the body is nested too deeply")
    logger.error("the journal cannot be used: %s", error)  # with the name of the file
    request.app.state.metrics.failures.labels("refuse").inc()
    return error_reply(503, "the journal cannot be used; repeat the request later")


def _sentence_of(error: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return one sentence about an error of pydantic, and the field."""
    names = (str(part) for part in error["loc"] if part not in ("body", "query", "item", "list"))
    param = shorten(join_lines(".".join(names)))
    field = param or "the body"
    match error["type"]:
        case "json_invalid":
            return "the body is not JSON", None
        case "missing":
            rule = "missing; it is required"
        case "extra_forbidden":
            rule = "unknown; it must be a field of the API (/openapi.json)"
        case "value_error":  # of our own checks
            name, _, rule = str(error["ctx"]["error"]).partition(": ")
            position = f"{field}." if field.isdecimal() else ""  # in a list of feedback
            field = field if field.endswith(name) else position + name
        case "too_long":
            rule = f"{error['ctx']['actual_length']} items found; it must have at most {error['ctx']['max_length']}"
        case "model_attributes_type" | "dict_type":
            rule = f"{quote(error['input'])} found; it must be an object"
        case _:
            rule = f"{quote(error['input'])} found; it must be {error['msg'].removeprefix('Input should be ')}"
    return f"{field}: {rule}", param or None
