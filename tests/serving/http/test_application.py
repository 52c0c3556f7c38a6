"""The API: the forms of all errors, keys and ids of any text, faults of the file, and its description."""

import json
import logging
import os
import shutil
import socket
from urllib.parse import quote

import pytest
from fastapi.exceptions import RequestValidationError
from starlette.testclient import TestClient

from exaul.serving.http.application import app
from exaul.serving.http.bodies import MOST_FEEDBACK
from exaul.serving.http.guard import add_request_id
from exaul.serving.http.server import address_of, listen
from exaul.serving.http.settings import logger
from exaul.serving.service import LEAST_BYTES, for_json
from tests.processes import sql
from tests.serving.http.apps import CONFIGURATION, answered

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def lasting(tmp_path_factory):
    """A client of one service, for requests that leave nothing which others could notice."""
    made = app(tmp_path_factory.mktemp("lasting") / "state", **CONFIGURATION)
    with TestClient(made, raise_server_exceptions=False) as client:
        yield client


def entries(client):
    """The entries of the journal of a service."""
    query = "SELECT key, kind, id, score, error FROM journal WHERE id <> '' ORDER BY seq"
    return sql(client.app.state.service.path, query)


def error_of(reply, status):
    """The error of a reply, which has the one form of all errors."""
    assert reply.status_code == status, reply.text
    (error,) = reply.json().values()
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["code"] is None
    assert len(error["message"]) < 400
    assert "\n" not in error["message"]
    return error


NO_JSON = "{", b"\xff\xfe", "[" * 100_000, '{"a":' * 100_000, '{"score": ' + "9" * 5000 + "}"
NO_SCORES = "NaN", "1e999", "-1e-9", "1.0000001", "9" * 400, '"0.5"', "true", "null", "[0.5]", '"\\ud800"'
DECIDE_ERRORS = [  # body, parameter, part of the sentence
    *((body, None, "not JSON") for body in NO_JSON),
    ("", None, "missing"),
    ("[]", None, "an object"),
    ("{}", "score", "missing"),
    *((f'{{"score": {value}}}', "score", "a number in [0, 1]") for value in NO_SCORES),
    ('{"score": 0.5, "key": null}', "key", "a text"),
    ('{"score": 0.5, "key": "\\ud800"}', "key", "UTF-8"),
    ('{"score": 0.5, "key": "a\\u0000"}', "key", "null character"),
    ('{"score": 0.5, "key": "' + "k" * 257 + '"}', "key", "256 characters"),
    ('{"score": 0.5, "id": ""}', "id", "1 to 256 characters"),
    # a stream has its id before its decision: whoever decided on it first would know the decision, or break it
    ('{"score": 0.5, "id": "chatcmpl-1"}', "id", "chatcmpl"),
    ('{"score": 0.5, "more": 1}', "more", "unknown"),
    ('{"score": 0.5, "\\ud800": 1}', None, "string"),
]


@pytest.mark.parametrize(("body", "param", "part"), DECIDE_ERRORS)
def test_a_bad_decision_is_one_sentence_about_a_field(lasting, body, param, part):
    before = entries(lasting)
    error = error_of(lasting.post("/v1/decide", content=body, headers=JSON), 400)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert part in error["message"]
    assert param is None or error["message"].startswith(f"{param}: ")
    assert entries(lasting) == before


@pytest.mark.parametrize("pair", ["[]", ('{"a":', "}")])
def test_json_of_any_depth_is_a_bad_request(lasting, pair):
    """Python stops at some 1,000 levels: in its parser, or a bit earlier, where an error quotes it."""
    for depth in [*range(900, 1000, 3), 5000]:
        body = f'{{"score": {pair[0] * depth}1{pair[1] * depth}}}'
        error_of(lasting.post("/v1/decide", content=body, headers=JSON), 400)


FEEDBACK_ERRORS = [
    ({"id": "a"}, None, "error, thumb: one of the two"),
    ({"id": "a", "error": 1, "thumb": "up"}, None, "error, thumb: one of the two"),
    ({"error": 1}, "id", "id: missing"),
    ({"id": "", "error": 1}, "id", "1 to 256 characters"),
    ({"id": "a", "error": "up"}, "error", "a number in [0, 1], true or false"),
    ({"id": "a", "thumb": "sideways"}, "thumb", "'up' or 'down'"),
    ([{"id": "a", "error": 1}, {"id": "a"}], "1", "1.error, thumb: one of the two"),
    ([{"id": "a", "error": 1}, {"id": "a", "error": 2}], "1.error", "1.error: 2 found; it must be a number in"),
    ([{"id": "a", "error": 1}, 1], "1", "an object"),
    ([{"id": "a", "error": 1}] * (MOST_FEEDBACK + 1), None, "at most 1000"),
]


@pytest.mark.parametrize(("body", "param", "part"), FEEDBACK_ERRORS)
def test_bad_feedback_is_one_sentence_about_a_field_and_none_of_a_list_counts(lasting, body, param, part):
    answered(lasting, id="a")
    before = entries(lasting)
    error = error_of(lasting.post("/v1/feedback", json=body), 400)
    assert error["param"] == param
    assert part in error["message"]
    assert entries(lasting) == before


MANY = {str(number): 0 for number in range(90_000)}


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ([MANY], "0.fields: 90000 found"),
        ([{str(number): 0 for number in range(16)}] * 1000, "0.id: missing"),
    ],
)
def test_a_body_of_many_errors_costs_no_more_than_of_one(lasting, monkeypatch, body, part):
    described = []
    errors = RequestValidationError.errors
    monkeypatch.setattr(
        RequestValidationError, "errors", lambda self: described.append(errors(self)) or described[-1]
    )
    assert part in error_of(lasting.post("/v1/feedback", json=body), 400)["message"]
    assert len(described[0]) <= 18


@pytest.mark.parametrize(
    ("url", "status"),
    [
        *((url, 404) for url in ("/docs", "/v1/decide/", "/v1/keys/unknown", "/v1/keys/%00", "/v1/keys/%ff")),
        ("/v1/decide", 405),
        *((f"/v1/keys?{query}", 400) for query in ("limit=0", "limit=101", "offset=-1", f"offset={2**32 + 1}")),
    ],
)
def test_other_errors_have_the_same_form(lasting, url, status):
    kind = "not_found_error" if status == 404 else "invalid_request_error"
    error = error_of(lasting.get(url), status)
    assert error["type"] == kind
    assert error["message"].startswith("no such path; a client's address ends in /v1") == (
        url in ("/docs", "/v1/decide/")
    )


def test_without_an_upstream_a_completion_is_not_found(lasting):
    error = error_of(lasting.post("/v1/chat/completions", json={}), 404)
    assert error["message"] == "this service has no --upstream; it decides by /v1/decide"


def test_an_id_with_another_key_is_a_conflict(client):
    client.post("/v1/decide", json={"score": 0.5, "key": "a", "id": "x"})
    error = error_of(client.post("/v1/decide", json={"score": 0.5, "id": "x"}), 409)
    assert (error["type"], error["param"]) == ("conflict_error", "id")
    assert error["message"] == "id: 'x' was decided with another score or key; it must be new"


def test_figures_of_any_key(client):
    """Each is told from all others, however many questions they have."""
    keys = "", "a", "/", "a/b", "a?b#c", "e", "\u00e9", "e\u0301", "\U0001f600" * 256, "a\n", "\n", "a\r\n", "a/b\n"
    for number, key in enumerate(keys, 1):
        for _ in range(number):
            assert client.post("/v1/decide", json={"score": 0.5, "key": key}).status_code == 200
    for number, key in enumerate(keys, 1):
        for address in {quote(key, safe=""), quote(key)}:
            figures = client.get(f"/v1/keys/{address}").json()
            assert (figures["key"], figures["questions"]) == (key, number)


FAULTS = "full", "read-only", "replaced", "removed", "cut off", "wal removed"


def break_file(client, fault):
    """Break the file under a running service; return what repairs it, or None."""
    path, connection = client.app.state.service.path, client.app.state.service._journal._connection
    if fault == "full":
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        while client.post("/v1/decide", json={"score": 0.5, "id": os.urandom(120).hex()}).is_success:
            pass  # until the last page is full
        return lambda: connection.execute("PRAGMA max_page_count = 1000000")
    if fault == "read-only":
        connection.execute("PRAGMA query_only = TRUE")
        return lambda: connection.execute("PRAGMA query_only = FALSE")
    aside = path.with_name("aside")
    if fault in ("replaced", "removed"):
        path.rename(aside)
        if fault == "replaced":
            shutil.copy(aside, path)
        return lambda: aside.rename(path)
    if fault == "cut off":
        os.truncate(path, 0)
    else:
        path.with_name("state-wal").unlink()
    return None


@pytest.mark.parametrize("fault", FAULTS)
def test_while_the_file_cannot_be_used_nothing_is_given_out_that_does_not_say_so(client, fault, caplog):
    """Which replies are given is a setting; those that are decided without the journal are counted."""
    caplog.set_level(logging.ERROR)
    id, state = answered(client, key="a" * 200), client.app.state
    long = {"score": 0.5, "id": "i" * 256}
    before = client.get("/v1/overview")
    repair = break_file(client, fault)
    reply = client.post("/v1/decide", json=long)
    error = error_of(reply, 503)
    assert (error["type"], reply.headers["retry-after"]) == ("server_error", "1")
    assert "state" not in error["message"]
    assert f"{state.service.path}" in caplog.text  # a line names the file
    error_of(client.post("/v1/decide", json={"score": 0.5, "key": "k" * 256}), 503)
    assert [client.request(method, "/healthz").status_code for method in ("GET", "HEAD")] == [200, 200]
    error_of(client.get("/readyz"), 503)
    for on_error in ("abstain", "answer"):
        state.on_error = on_error
        nothing = {"id": None, "probability": None, "audit": False, "repeated": False, "error": "journal"}
        assert client.post("/v1/decide", json=long).json() == nothing | {"answer": on_error == "answer"}
        assert f'exaul_journal_failures_total{{reply="{on_error}"}} 1.0' in client.get("/metrics").text
        error_of(client.post("/v1/decide", json={"score": 2}), 400)
    if repair is not None:
        repair()
        assert client.get("/readyz").status_code == 200
        if fault != "full":  # nothing has changed
            after = client.get("/v1/overview")
            assert (after.text, after.headers["etag"]) == (before.text, before.headers["etag"])
            assert after.json() == for_json(state.service.overview())
        assert client.post("/v1/decide", json=long).json()["id"] == long["id"]
        assert client.post("/v1/feedback", json={"id": id, "error": 1}).json()["reason"] == "counted"
        state.on_error = "refuse"
        break_file(client, fault)  # also when the service ends
        client.post("/v1/decide", json={"score": 0.5})


def test_a_line_of_the_thread_of_the_file_has_the_id_of_its_request(client, caplog, monkeypatch):
    caplog.handler.addFilter(add_request_id)
    monkeypatch.setattr(client.app.state.service, "count_keys", lambda: logger.warning("said") or 3)
    client.get("/v1/keys", headers={"x-request-id": "q-17"})
    assert [record.request_id for record in caplog.records if record.message == "said"] == ["q-17"]


def test_a_disk_that_is_almost_full_is_not_ready(client, monkeypatch):
    for free, status in ((LEAST_BYTES - 1, 503), (LEAST_BYTES, 200)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: shutil._ntuple_diskusage(0, 0, free))
        assert client.get("/readyz").status_code == status
        assert client.post("/v1/decide", json={"score": 0.5}).status_code == 200
    service = client.app.state.service
    service._ready_at -= 2  # seconds later
    service.close()
    error_of(client.get("/readyz"), 503)


def test_a_fault_in_a_list_keeps_what_was_counted_and_a_repetition_counts_the_rest(client, monkeypatch):
    ids = [answered(client) for _ in range(4)]
    feedback, calls = client.app.state.service.feedback, []

    def failing(id, error, judges):
        calls.append(id)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return feedback(id, error, judges)

    monkeypatch.setattr(client.app.state.service, "feedback", failing)
    items = [{"id": id, "error": 1} for id in ids]
    assert client.post("/v1/feedback", json=items).status_code == 503
    reasons = [each["reason"] for each in client.post("/v1/feedback", json=items).json()]
    assert reasons == ["repeated", "repeated", "counted", "counted"]


def test_every_status_of_the_errors_is_described(lasting):
    description = lasting.get("/openapi.json").json()
    schemas = {}  # by address, method and status
    for url, ways in description["paths"].items():
        for method, way in ways.items():
            for status, reply in way["responses"].items():
                schemas[url, method, status] = reply["content"].get("application/json", {}).get("schema")
    expected = {"/v1/decide": "200 400 401 403 409 413 415 503 default"}
    expected |= dict.fromkeys(("/v1/feedback", "/v1/withdraw"), "200 400 401 403 413 415 503 default")
    for url, known in expected.items():
        assert sorted(status for each, _, status in schemas if each == url) == known.split()
    assert ("/v1/keys/{key}", "get", "404") in schemas
    errors = [schema for (_, _, status), schema in schemas.items() if status != "200"]
    assert errors == [{"$ref": "#/components/schemas/ErrorBody"}] * len(errors)
    error = description["components"]["schemas"]["ErrorDetail"]
    assert set(error["required"]) == {"message", "type", "param", "code"}


def test_keys_come_in_pages_and_no_others_are_read(client, monkeypatch):
    """With 100,000 keys that would take 40 ms, in which nobody gets a decision."""
    for n in range(7):
        client.post("/v1/decide", json={"score": 0.5, "key": str(n)})
    journal, read = client.app.state.service._journal, []
    all_keys = journal.all_keys
    monkeypatch.setattr(journal, "all_keys", lambda *given: read.append(all_keys(*given)) or read[-1])
    page = json.loads(client.get("/v1/keys?limit=3&offset=2").text, parse_constant=pytest.fail)
    assert page["total"] == client.get("/v1/overview").json()["total"] == 7
    assert [each["key"] for each in page["keys"]] == ["2", "3", "4"]
    assert {each["fdr_observed"] for each in page["keys"]} == {None}  # not defined yet
    assert client.get(f"/v1/keys?offset={2**32}").json()["keys"] == []
    assert read == [["2", "3", "4"], []]


def test_connections_send_at_once():
    """Without TCP_NODELAY, a reply waits some 40 ms for the acknowledgement of its head."""
    with listen("localhost", 0) as listener:
        assert address_of(listener).startswith("http://127.0.0.1:")
        assert listener.proto == socket.IPPROTO_TCP
