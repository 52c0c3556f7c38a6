"""Programs under test may use the learners of ``tests/constant.py``, also those that several tests share."""

from functools import partial

import pytest
from starlette.responses import JSONResponse
from starlette.testclient import TestClient

from exaul.serving import configuration
from exaul.serving.http.application import app
from tests.models.stub import completion
from tests.serving.http.apps import ABSTAIN, CONFIGURATION, KEY, SECRET, gateway


@pytest.fixture(scope="session", autouse=True)
def _constant_learners_of_all():
    places = [f"tests.constant:{name}" for name in ("answers", "abstains")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(configuration, "ONLINE_LEARNERS", (*configuration.ONLINE_LEARNERS, *places))
        yield


@pytest.fixture
def other(endpoints):
    """Another endpoint."""
    return endpoints[1].renew()


@pytest.fixture
def town(stub):
    """An endpoint whose answer is a secret, with fields that the gateway does not know."""
    body = completion(f"It is {SECRET}", thoughts=f"surely {SECRET}")
    body["choices"][0]["message"] |= {"reasoning_content": f"so {SECRET}", "refusal": None}
    body["usage"] |= {"details": {"text": SECRET}, "more": 1}
    body["id"] = "chatcmpl-1"
    stub.rule = lambda asked, before: JSONResponse(body, headers={"x-text": SECRET, "set-cookie": f"a={SECRET}"})
    stub.body = body
    return stub


@pytest.fixture(scope="module")
def withholder(endpoints, tmp_path_factory):
    """A gateway with the endpoint's key that withholds every answer it decides on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UPSTREAM_KEY", KEY)
        how = {"upstream_key_variable": "UPSTREAM_KEY", "port": None}
        with gateway(tmp_path_factory.mktemp("withholder"), endpoints[0].url, ABSTAIN, **how) as client:
            yield client


@pytest.fixture
def undecided(stub, withholder):
    """An endpoint and that gateway, which decides nothing."""
    before = withholder.questions()
    yield stub, withholder
    assert withholder.questions() == before


@pytest.fixture
def gate(stub, tmp_path):
    """Gateways before the endpoint, which go on with one journal."""
    return partial(gateway, tmp_path, stub.url, port=None)


@pytest.fixture
def opened(tmp_path):
    """Clients of services, which go on with one file."""
    return lambda name="state", **how: TestClient(app(tmp_path / name, **how), raise_server_exceptions=False)


@pytest.fixture
def client(opened):
    """A client of a new service."""
    with opened(**CONFIGURATION) as client:
        yield client
