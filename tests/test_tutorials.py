"""The notebooks in ``docs/tutorials`` run, and print what is stored in them.

``uv run --group notebooks pytest -m slow tests/test_tutorials.py`` executes them; after a change,
``uv run --group notebooks python -m tests.tutorials`` stores new outputs.
"""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.test_docs import broken_links

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 300_000  # bytes of a notebook
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def printed(cells):
    """Return for each cell with code what it printed or returned as text; images count only as such."""
    return [
        [
            (output["name"], "".join(output["text"]))
            if "text" in output
            else "image" * ("image/png" in output["data"]) or "".join(output["data"]["text/plain"])
            for output in cell["outputs"]
        ]
        for cell in cells
        if cell["cell_type"] == "code"
    ]


@each_notebook
def test_a_notebook_is_small_and_was_executed_once_without_warnings_or_traces_of_a_machine(path):
    text = path.read_text(encoding="utf-8")
    assert len(text) < LARGEST
    shown = re.sub(r'"image/png": "[^"]*"', "", text)
    assert re.findall(r"/tmp|/root|/work|site-packages|20\d\d-\d\d|\d\d:\d\d:\d\d", shown) == []
    assert set(json.loads(text)["metadata"]) == {"kernelspec"}
    cells = cells_of(path)
    assert all(cell["metadata"] == {} for cell in cells)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    kinds = {(output["output_type"], output.get("name")) for cell in code for output in cell["outputs"]}
    assert kinds <= {("stream", "stdout"), ("execute_result", None), ("display_data", None)}
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    assert list(broken_links(path, "\n".join(texts))) == []


@pytest.mark.slow
@each_notebook
def test_a_notebook_prints_what_is_stored(path, monkeypatch):
    """Floating point may differ between machines: then store the outputs again, and read what has changed."""
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    from tests.tutorials import execute

    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)  # of the command exaul
    assert printed(execute(path).cells) == printed(cells_of(path))
