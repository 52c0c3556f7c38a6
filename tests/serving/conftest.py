"""Programs under test may use the learners of ``tests/constant.py``, also those that several tests share."""

from functools import partial

import pytest
from starlette.responses import JSONResponse
from starlette.testclient import TestClient

from exaul.serving import configuration
from exaul.serving.http.application import app
from tests.models.stub import completion, served
from tests.serving.http.apps import ABSTAIN, CONFIGURATION, KEY, SECRET, gateway


@pytest.fixture(scope="session", autouse=True)
def _constant_learners_of_all():
    places = [f"tests.constant:{name}" for name in ("answers", "abstains")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(configuration, "LEARNERS", (*configuration.LEARNERS, *places))
        yield


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
def withholding(tmp_path_factory):
    """An endpoint, and a gateway with its key that withholds every answer it decides on."""
    with pytest.MonkeyPatch.context() as patch, served() as endpoint:
        patch.setenv("UPSTREAM_KEY", KEY)
        folder = tmp_path_factory.mktemp("withholding")
        with gateway(folder, endpoint.url, ABSTAIN, upstream_key_variable="UPSTREAM_KEY") as client:
            yield endpoint, client


@pytest.fixture
def undecided(withholding):
    """The same, and that it decided nothing."""
    endpoint, client = withholding
    endpoint.asked.clear()
    endpoint.keys.clear()
    before = client.questions()
    yield endpoint, client
    assert client.questions() == before


@pytest.fixture
def gate(stub, tmp_path):
    """Gateways before the endpoint, which go on with one journal."""
    return partial(gateway, tmp_path, stub.url)


@pytest.fixture
def client(tmp_path):
    """A client of a new service, whose file is ``state``."""
    with TestClient(app(tmp_path / "state", **CONFIGURATION), raise_server_exceptions=False) as client:
        yield client
