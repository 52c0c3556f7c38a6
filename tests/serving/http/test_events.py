"""The event streams and the overview: how many are open, and how often they are computed."""

import asyncio
import gc
import time

import pytest

from exaul.serving.http import application as application_module
from exaul.serving.http.application import app


@pytest.fixture
def application(tmp_path, monkeypatch):
    monkeypatch.setattr(application_module, "MOST_STREAMS", 3)
    application = app(tmp_path / "state", learner="aci-rank")
    yield application
    application.state.service.close()


async def opened(application, leaving, path="/v1/events"):
    """Open an event stream; return its status, after the client has left while the first event was sent."""
    status, sending = [], asyncio.Event()
    scope = {"type": "http", "method": "GET", "path": path, "headers": [(b"host", b"localhost")]}
    scope |= {"query_string": b"", "http_version": "1.1", "asgi": {"spec_version": "2.3"}}
    asked = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive():
        for message in asked:
            return message
        await sending.wait()
        await leaving.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        if message["type"] == "http.response.start":
            status.append(message["status"])
        elif status == [200] and message.get("more_body"):
            sending.set()
            await asyncio.sleep(60)  # the client does not read

    await application(scope, receive, send)
    return status[0]


def test_streams_that_are_opened_at_once_are_counted(application):
    async def open_ten():
        leaving = asyncio.Event()
        asyncio.get_running_loop().call_later(0.3, leaving.set)
        return await asyncio.gather(*(opened(application, leaving) for _ in range(10)))

    assert sorted(asyncio.run(open_ten())) == [200] * 3 + [503] * 7


def test_a_client_that_leaves_while_an_event_is_sent_leaves_its_place(application):
    async def open_ten():
        leaving = asyncio.Event()
        leaving.set()
        return [await opened(application, leaving) for _ in range(10)]

    gc.disable()
    try:
        assert asyncio.run(open_ten()) == [200] * 10
    finally:
        gc.enable()


def test_the_overview_is_computed_once_for_all_that_wait(application, monkeypatch):
    service, computed = application.state.service, []
    overview = service.overview

    def slow_overview():
        computed.append(service.changes)
        time.sleep(0.1)
        return overview()

    monkeypatch.setattr(service, "overview", slow_overview)

    async def ask_ten():
        await asyncio.gather(*(opened(application, asyncio.Event(), "/v1/overview") for _ in range(10)))

    asyncio.run(ask_ten())
    assert len(computed) == 1
