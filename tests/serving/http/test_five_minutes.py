"""The commands of docs/service.md do what the page says, before a real model."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.models.conftest import small_model  # noqa: F401  # a fixture

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
ENDPOINT, SERVICE = "http://127.0.0.1:8000/v1", "http://127.0.0.1:8321"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="no curl, which the page uses"),
]


def blocks(title, language):
    """The blocks of code of a section in a language, in order."""
    section = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)[1]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


@contextmanager
def serving(command, folder):
    """Run the command that starts the service, on a free port; yield its address."""
    assert command.startswith("uv run --extra serve exaul serve ")
    arguments = command.replace("\\\n", "").split()[5:]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-m", "exaul", *arguments, "--port", "0"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
    assert process.returncode == 0


def asked(command, address):
    """Run a command with curl, and return the reply."""
    assert SERVICE in command
    done = subprocess.run(command.replace(SERVICE, address), shell=True, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_five_minutes(small_model, tmp_path, monkeypatch):  # noqa: F811
    start, ask, rate = blocks("Five minutes", "sh")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with serving(start.replace(ENDPOINT, small_model), tmp_path) as address:
        for _ in range(3):
            reply = asked(ask, address)
            described = json.loads("{" + blocks("Five minutes", "json")[0] + "}")["exaul"]
            decision = reply["exaul"]
            assert decision.keys() == described.keys()
            shown = reply["choices"][0]["message"]["content"] != "I don't know."
            assert shown == decision["answer"]
            outcome = asked(rate.replace(described["id"], decision["id"]), address)
            assert outcome == {"accepted": shown, "reason": "counted" if shown else "withheld"}
        page = subprocess.run(["curl", "-s", f"{address}/"], capture_output=True, text=True, check=True)
        assert page.stdout.startswith("<!doctype html>")
    verify = [sys.executable, "-m", "exaul", "journal", "verify", "state.sqlite"]
    done = subprocess.run(
        verify, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert "same decisions: yes" in done.stdout


def test_your_own_program(tmp_path):
    start, ask = blocks("Your own program", "sh")[0].splitlines()
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with serving(start, tmp_path) as address:
        assert asked(ask, address).keys() == {"id", "answer", "probability", "audit", "repeated", "error"}
