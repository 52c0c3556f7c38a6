"""The commands of docs/service.md do what the page says, before a real model."""

import json
import shutil
import subprocess

import pytest

from tests.models.conftest import small_model  # noqa: F401  # a fixture
from tests.processes import EXAUL, ROOT, serving, variables
from tests.serving.http.apps import blocks

PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
ENDPOINT, SERVICE = "http://127.0.0.1:8000/v1", "http://127.0.0.1:8321"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="no curl, which the page uses"),
]


def of_page(command):
    """The command that starts the service, on a free port."""
    assert command.startswith("uv run --extra serve exaul serve ")
    return [*EXAUL, *command.replace("\\\n", "").split()[5:], "--port", "0"]


def asked(command, address):
    """Run a command with curl, and return the reply."""
    assert SERVICE in command
    done = subprocess.run(command.replace(SERVICE, address), shell=True, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_five_minutes(small_model, tmp_path, in_folder):  # noqa: F811
    start, ask, rate = blocks(PAGE, "Five minutes", "sh")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with serving(of_page(start.replace(ENDPOINT, small_model)), tmp_path) as (_, address):
        for _ in range(3):
            reply = asked(ask, address)
            described = json.loads("{" + blocks(PAGE, "Five minutes", "json")[0] + "}")["exaul"]
            decision = reply["exaul"]
            assert list(decision) == list(described)
            shown = reply["choices"][0]["message"]["content"] != "I don't know."
            assert shown == decision["answer"]
            outcome = asked(rate.replace(described["id"], decision["id"]), address)
            assert outcome == {"accepted": shown, "reason": "counted" if shown else "withheld"}
        scope = {}
        exec(blocks(PAGE, "Five minutes", "python")[0].replace(SERVICE, address), scope)
        assert scope["reply"].exaul["id"] == scope["reply"].id
        page = subprocess.run(["curl", "-s", f"{address}/"], capture_output=True, text=True, check=True)
        assert page.stdout.startswith("<!doctype html>")
    verify = [*EXAUL, "journal", "verify", "state.sqlite"]
    done = subprocess.run(verify, env=variables(), capture_output=True, text=True, check=True)
    assert "same decisions: yes" in done.stdout


def test_your_own_program(tmp_path):
    start, ask = blocks(PAGE, "Your own program", "sh")[0].splitlines()
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with serving(of_page(start), tmp_path) as (_, address):
        assert asked(ask, address).keys() == {"id", "answer", "probability", "audit", "repeated", "error"}
