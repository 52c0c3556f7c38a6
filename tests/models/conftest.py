"""A real small model, and questions."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import create_model

from tests.models.stub import KNOWN, write_rows


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
    rows = [{"question": q, "answers": [a, f"the {a}"]} for q, a in list(KNOWN.items())[:12]]
    return write_rows(tmp_path / "sums.jsonl", rows)


def part(**fields):
    """A class of Inspect's: the type of each field, and its default or ``...``."""
    return create_model("Part", **fields)


TOKENS = part(content=(list[part(logprob=(float, ...))], ...))
OUTPUT = part(choices=(list[part(logprobs=(TOKENS | None, None))], []), completion=(str, ""))
SCORE = part(value=(str | int | float | bool | list | dict, ...), answer=(str | None, None))
SAMPLE = part(id=(int | str, ...), epoch=(int, ...), error=(Any, None), output=(OUTPUT, OUTPUT()))
INSPECTED = part(samples=(list[part(__base__=SAMPLE, scores=(dict[str, SCORE] | None, None))], ...))


@pytest.fixture
def inspect_ai(monkeypatch):
    """Inspect's reader, as far as it is used."""
    log, scorer = ModuleType("inspect_ai.log"), ModuleType("inspect_ai.scorer")
    log.read_eval_log = lambda path: INSPECTED.model_validate_json(Path(path).read_bytes())
    scorer.value_to_float = lambda: {"C": 1.0, "P": 0.5}.get
    for module in (ModuleType("inspect_ai"), log, scorer):
        monkeypatch.setitem(sys.modules, module.__name__, module)
