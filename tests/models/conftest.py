"""A real small model, and questions."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.models.stub import KNOWN


@pytest.fixture(scope="session")
def small_model():
    """The address of a real language model of 135 million parameters."""
    pytest.importorskip("xllamacpp", reason="no xllamacpp, which serves the model, for this Python")
    code = Path(__file__).with_name("model_server.py")
    with subprocess.Popen(
        [sys.executable, str(code)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as running:
        try:
            line = running.stdout.readline()
            if not line.startswith("http"):
                pytest.skip(f"no small model: {line.strip() or 'its server ended'}")
            yield f"{line.strip()}/v1"
        finally:
            running.kill()


@pytest.fixture
def sums(tmp_path):
    """A file of twelve questions."""
    path = tmp_path / "sums.jsonl"
    rows = [{"question": q, "answers": [a, f"the {a}"]} for q, a in list(KNOWN.items())[:12]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
