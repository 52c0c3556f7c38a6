"""ASGI middleware: token, host, form and body of a request before the application, and headers of each reply."""

import asyncio
import re
import secrets
import traceback
from collections.abc import Collection
from contextlib import suppress
from contextvars import ContextVar
from logging import LogRecord

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from exaul.serving.http.errors import SECURITY_HEADERS, error_reply
from exaul.serving.http.settings import SCOPES, Grant, Tokens, logger

BODY_BYTES = 1024 * 1024  # of a request
TOO_LONG = f"The body is too long: at most {BODY_BYTES} bytes are allowed."
BODY_SECONDS = 10.0  # from the head until the body is complete
LINGER_SECONDS = 2.0  # after an error, what the client still sends is dropped, so that it reads the reply
OPEN = {"/", "/healthz", "/readyz", "/openapi.json"}  # paths that need no token
SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
REQUEST_ID = ContextVar("request_id", default="-")  # of the request in whose context a line is logged


class Guard:
    """Check each request, then read all of its body.

    ``scope["state"]`` gets the ``scopes`` and ``key`` of its token, and REQUEST_ID its id.

    If ``tokens`` is None, all requests have all scopes. ``hosts`` are the names that the Host header may have;
    those of loopback stop sites that let their name resolve to it (DNS rebinding). None: any name.
    """

    def __init__(self, application: ASGIApp, tokens: Tokens | None, hosts: Collection[str] | None) -> None:
        self._application, self._tokens, self._hosts = application, tokens, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reply with an error."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        headers, state, started = Headers(scope=scope), scope.setdefault("state", {}), False
        id = headers.get("x-request-id", "")
        REQUEST_ID.set(id := id if SAFE_ID.fullmatch(id) else secrets.token_hex(16))

        async def reply(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started, reply_headers = True, MutableHeaders(scope=message)
                for name, value in (SECURITY_HEADERS | {"x-request-id": id}).items():
                    reply_headers.setdefault(name, value)
            await send(message)
            if message.get("more_body"):
                await asyncio.sleep(0)  # a long stream lets others run, and a disconnect is seen

        async def refuse(status: int, sentence: str, *, unread: bool = False) -> None:
            if started:  # the server closes the connection, whose reply is incomplete
                return
            error = error_reply(status, sentence, headers={"Connection": "close"})
            await reply({"type": "http.response.start", "status": status, "headers": error.raw_headers})
            await reply({"type": "http.response.body", "body": error.body, "more_body": True})
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER_SECONDS):
                    while unread:
                        unread = (await receive()).get("more_body", False)
            await reply({"type": "http.response.body"})

        async def next_message() -> Message:
            return messages.pop() if messages else await receive()

        try:
            state["scopes"], state["key"] = self._grant_of(scope, headers)
            if messages := await _read_body(receive):  # else the client is gone
                await self._application(scope, next_message, reply)
        except HTTPException as error:  # of this file: the application replies to its own
            await refuse(error.status_code, error.detail, unread=True)
        except asyncio.CancelledError:  # the server stops; it would log a traceback
            await refuse(503, "The server was stopped before the reply was complete.")
        except Exception as error:
            frames = "".join(traceback.format_tb(error.__traceback__))  # the text may quote a body: it is left out
            logger.error("%s in the application:\n%s", type(error).__name__, frames)
            await refuse(500, "The server failed; its log has the details.")

    def _grant_of(self, scope: Scope, headers: Headers) -> Grant:
        """Return what the request may do; raise HTTPException if it is refused."""
        if self._hosts is not None and re.sub(r":\d*$", "", headers.get("host", "")).lower() not in self._hosts:
            raise HTTPException(421, f"The Host header must be {' or '.join(sorted(self._hosts))}.")
        kind, _, token = headers.get("authorization", "").partition(" ")
        token = token if kind.lower() == "bearer" else ""
        grant = Grant(frozenset(SCOPES)) if self._tokens is None else self._tokens.grant_of(token)
        if not grant.scopes and scope["path"].removeprefix(scope.get("root_path", "")) not in OPEN:
            raise HTTPException(401, "A valid bearer token is needed: Authorization: Bearer TOKEN")
        length, chunked = headers.get("content-length"), "transfer-encoding" in headers
        if length is not None and chunked:  # a proxy could see another end of the body (request smuggling)
            raise HTTPException(400, "A request has a Content-Length or a Transfer-Encoding, not both.")
        types = [value.partition(";")[0].strip().lower() for value in headers.getlist("content-type")]
        if (chunked or length not in (None, "0")) and types != ["application/json"]:
            raise HTTPException(415, "The Content-Type of a body must be application/json.")
        if int(length or 0) > BODY_BYTES:  # the parser has checked that it is a number
            raise HTTPException(413, TOO_LONG)
        return grant


def add_request_id(record: LogRecord) -> bool:
    """Add the field ``request_id`` to a record of the log: a filter of a handler."""
    record.request_id = REQUEST_ID.get()
    return True


async def _read_body(receive: Receive) -> list[Message]:
    """Return the body as one message, or nothing if the client disconnects."""
    body, has_more = bytearray(), True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while has_more:
                message = await receive()
                if message["type"] != "http.request":
                    return []
                body += message.get("body", b"")
                has_more = message.get("more_body", False)
                if len(body) > BODY_BYTES:
                    raise HTTPException(413, TOO_LONG)
    except TimeoutError:
        raise HTTPException(408, f"The body did not arrive within {BODY_SECONDS:g} seconds.") from None
    return [{"type": "http.request", "body": bytes(body), "more_body": False}]
