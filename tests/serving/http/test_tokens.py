"""Bearer tokens: what each scope may do, what is refused, and that no token is ever written."""

import asyncio
import hmac
import logging
import re
from functools import partial
from itertools import product
from unittest import mock

import pytest

from exaul import BadInput
from exaul.serving.http import settings
from exaul.serving.http.guard import Guard
from exaul.serving.http.settings import SCOPES, Tokens
from tests.serving.http.apps import EASY

SECRETS = {scope: f"secret-of-{scope}-0123456789" for scope in SCOPES}
ALL = "secret-of-all-0123456789"
ROUTES = {  # method, path, body: scopes, of which each is enough
    ("POST", "/v1/decide", '{"score": 0.5}'): ("decide",),
    ("POST", "/v1/withdraw", '{"id": "x"}'): ("decide",),
    ("POST", "/v1/feedback", '{"id": "x", "error": 1}'): ("feedback",),
    ("POST", "/v1/feedback", '[{"id": "x", "error": 1}]'): ("feedback",),
    ("GET", "/v1/keys", None): ("read",),
    ("GET", "/v1/keys/", None): ("read",),
    ("GET", "/v1/overview", None): ("read",),
    ("GET", "/metrics", None): ("metrics", "read"),
    ("GET", "/v1/audits", None): ("audit",),
    ("POST", "/v1/audits", '{"id": "x", "error": 1}'): ("audit",),
}
OPEN = ("GET", "/", None), ("GET", "/healthz", None), ("GET", "/readyz", None), ("GET", "/openapi.json", None)


def write(path, *lines):
    """A file of tokens that its owner alone can read."""
    path.touch(0o600)
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def source(tmp_path):
    lines = [f"{scope} {secret}" for scope, secret in SECRETS.items()]
    return write(tmp_path / "tokens", "# three services", "", *lines, f"{','.join(SCOPES)} {ALL}")


@pytest.fixture
def client(opened, source):
    with opened(tokens=str(source), learner="aci-rank") as client:
        authorization = {"Authorization": f"Bearer {SECRETS['decide']}"}
        made_key = client.post("/v1/decide", json={"score": 1}, headers=authorization)
        assert made_key.status_code == 200  # the default key of a new file needs no scope
        yield client


def request(client, route, authorization=None, path=""):
    method, url, body = route
    headers = {"content-type": "application/json"} if body else {}
    if authorization is not None:
        headers["authorization"] = authorization
    return client.request(method, url + path, content=body, headers=headers)


def test_a_route_needs_its_scope(client):
    """A new route is in ROUTES, or was decided to be open."""
    urls = {re.sub(r"\{.*", "", route.path) for route in client.app.routes if hasattr(route, "path")}
    assert urls == {url for _, url, _ in (*ROUTES, *OPEN)}
    assert {request(client, route).status_code for route in OPEN} == {200}
    for (route, scopes), (scope, secret) in product(ROUTES.items(), SECRETS.items()):
        reply = request(client, route, f"Bearer {secret}")
        assert reply.status_code == (200 if scope in scopes else 403)
        if scope not in scopes:
            error = reply.json()["error"]
            assert error["type"] == "permission_error"
            assert error["message"] == f"the token lacks the scope {scopes[0]}"
    assert {request(client, route, f"bearer {ALL}").status_code for route in ROUTES} == {200}


# values of the header Authorization
WRONG = (
    None,
    f"Basic {ALL}",
    ALL,
    f"Bearer {ALL}x",
    f"Bearer {ALL[:-1]}",
    b"Bearer \xff\xfe",
    f"Bearer {'x' * 8000}",
)


def test_a_wrong_token_is_refused_everywhere(client):
    for route, authorization in product(ROUTES, WRONG):
        reply = request(client, route, authorization)
        assert reply.status_code == 401
        assert reply.headers["www-authenticate"] == "Bearer"
        assert reply.json()["error"]["type"] == "authentication_error"
    for name in ("token", "access_token", "authorization", "api_key"):  # nor is one in the query or the body taken
        assert request(client, ("GET", "/v1/keys", None), path=f"?{name}={ALL}").status_code == 401
    assert client.post("/v1/decide", json={"score": 1, "token": ALL}).status_code == 401


def test_without_a_token_the_body_is_read_after_the_reply(source):
    """Else the system may discard the reply before the client reads it."""
    events, more = [], [False, True]

    async def receive():
        events.append("receive")
        return {"type": "http.request", "body": bytes(9), "more_body": more.pop()}

    async def send(message):
        events.append(message.get("status", bool(message.get("body"))))

    scope = {"type": "http", "method": "POST", "path": "/v1/decide", "headers": [(b"content-length", b"18")]}
    asyncio.run(Guard(None, Tokens(str(source)), None)(scope, receive, send))
    assert events == [401, True, "receive", "receive", False]


def test_only_the_scope_keys_makes_a_key(client):
    def decide(secret):
        return request(client, ("POST", "/v1/decide", '{"score": 0.5, "key": "new"}'), f"Bearer {secret}")

    service = client.app.state.service
    assert "key: 'new' is new; the token lacks the scope keys" in decide(SECRETS["decide"]).text
    assert decide(SECRETS["keys"]).status_code == 403  # without decide
    assert service.all_keys() == [""]
    assert [decide(secret).status_code for secret in (ALL, SECRETS["decide"])] == [200, 200]
    assert service.all_keys() == ["", "new"]


def test_all_tokens_are_compared_in_constant_time(monkeypatch, source):
    known, compared = Tokens(str(source)), mock.Mock(wraps=hmac.compare_digest)
    monkeypatch.setattr(settings.hmac, "compare_digest", compared)
    assert known.grant_of(SECRETS["decide"]).scopes == {"decide"}
    assert known.grant_of("wrong").scopes == set()
    assert known.grant_of("\ud800").scopes == set()
    assert compared.call_count == 3 * (len(SCOPES) + 1)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("# a comment\n\n", "no token"),
        (f"{ALL} decide", "the token must have 16 to 512"),
        (ALL, "scopes, a token and perhaps a key"),
        (f"decide {ALL} a key", "scopes, a token and perhaps a key"),
        ("decide " + "x" * 513, "16 to 512 ASCII"),
        (f"decide é{ALL}", "16 to 512 ASCII"),
        (f"{ALL} {SECRETS['read']}", "the scopes must be of ask, decide, feedback, read, metrics, keys"),
        (f"decide {ALL}\nread {ALL}", "line 2: the token occurs twice"),
        (f"feedback,audit {ALL} a", "line 1: a key is not for the scopes audit and read"),
        (f"read {ALL} a", "a key is not for the scopes audit and read"),
        (f"ask {ALL} a/fallback", "must not end in /fallback"),
        (b"decide \xff", "UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_file_is_one_sentence_without_a_token_and_keeps_the_old_ones(source, caplog, monkeypatch, text, part):
    known = Tokens(str(source))
    if text is None:
        source.unlink()
    else:
        source.write_bytes(text if isinstance(text, bytes) else text.encode())
        monkeypatch.setenv("TOKENS", text if isinstance(text, str) else "")
    for place in (str(source), "env:TOKENS") if isinstance(text, str) else (str(source),):
        with pytest.raises(BadInput, match=part) as refused:
            Tokens(place)
        for word in (ALL, *SECRETS.values(), "x" * 100):
            assert word not in str(refused.value)
    known.reload()
    assert known.grant_of(ALL).scopes == set(SCOPES)
    assert [record.getMessage().count("\n") for record in caplog.records] == [0]
    assert ALL not in caplog.text
    write(source, f"read {ALL}")
    known.reload()
    assert known.grant_of(ALL).scopes == {"read"}
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_a_line_that_is_given_in_place_of_a_file_is_not_repeated():
    with pytest.raises(BadInput, match=r"^tokens: the file cannot be read") as refused:
        Tokens(f"decide,read {ALL}")
    assert ALL not in str(refused.value)


def test_a_file_that_all_can_read_is_reported(source, caplog):
    for mode in (0o640, 0o644):
        source.chmod(mode)
        Tokens(str(source))
        assert ("all users" in caplog.text) == (mode == 0o644)
    assert "secret" not in caplog.text


def test_no_secret_is_ever_written(opened, tmp_path, source, caplog, capfd):
    """Neither known tokens nor guesses are in a reply, a log, or a file of the service."""
    caplog.set_level(logging.DEBUG)
    secrets = ALL, SECRETS["decide"], SECRETS["read"], "guess-0123456789abcdef"
    written, decide = [], next(iter(ROUTES))
    with opened(tokens=str(source), learner="aci-rank", on_error="abstain") as client:
        service = client.app.state.service
        routes = *ROUTES, *OPEN, ("GET", "/nothing", None), ("POST", "/v1/decide", "{")
        for secret, route, kind in product(secrets, routes, ("Bearer", "Basic")):
            written.append(request(client, route, f"{kind} {secret}"))
        service.decide = lambda *_: 1 / 0
        written.append(request(client, decide, f"Bearer {ALL}"))
        assert written[-1].status_code == 500
        (tmp_path / "state").unlink()
        del service.decide
        written.append(request(client, decide, f"Bearer {ALL}"))
        files = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path != source)
    text = "".join(f"{reply.text} {reply.headers}" for reply in written) + "".join(capfd.readouterr())
    text += "".join(f"{record.getMessage()} {record.exc_text} {record.args}" for record in caplog.records)
    # the client's own log has its requests, without headers
    assert "division" not in text
    for secret in secrets:
        assert secret not in text
        assert secret.encode() not in files


def test_a_text_is_shown_to_those_who_audit_alone(opened, source):
    """Whatever route is read, with whatever other scopes (M5)."""
    with opened(tokens=str(source), audit=1.0, warm_start=EASY) as client:
        asked = {"id": "asked", "question": "a secret question", "text": "a secret answer"}
        client.app.state.service.decide(0.5, **asked)

        as_all = partial(request, client, authorization=f"Bearer {ALL}")
        for route, (scope, secret) in product((*ROUTES, *OPEN), SECRETS.items()):
            assert scope == "audit" or b"secret" not in request(client, route, f"Bearer {secret}").content
        waiting = as_all(("GET", "/v1/audits", None)).json()["audits"][0]
        assert (waiting["id"], waiting["text"]) == ("asked", "a secret answer")
        assert "secret" in as_all(("GET", "/v1/overview", None)).text
        verdict = as_all(("POST", "/v1/audits", '{"id": "asked", "thumb": "down"}'))
        assert verdict.json() == {"accepted": True, "reason": "counted"}
        left = as_all(("GET", "/v1/audits", None)).json()
        assert all(row["id"] != "asked" for row in left["audits"])
        assert f"exaul_audits_open {left['total']:.1f}" in as_all(("GET", "/metrics", None)).text
