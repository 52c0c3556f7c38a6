"""The notebooks in ``docs/tutorials`` run, and print what is stored in them.

``uv run --group notebooks pytest -m slow tests/test_tutorials.py`` executes them; after a change,
``uv run --group notebooks python -m tests.test_tutorials`` stores new outputs. Only what a reader sees is stored:
no times, no names of this machine, and images in few colours.
"""

import base64
import io
import json
import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.test_docs import broken_links

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 300_000  # bytes of a notebook
METADATA = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
WIDEST, COLOURS = 800, 128  # of an image, so that a notebook stays small
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


def execute(path):
    """Return the notebook with the outputs of a new kernel. Raise CellExecutionError if a cell fails."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    notebook.metadata = METADATA
    for number, cell in enumerate(notebook.cells, 1):
        cell.id, cell.metadata = f"cell-{number}", {}
    with TemporaryDirectory() as home:  # in which the notebook keeps what it writes
        client = NotebookClient(notebook, timeout=600, record_timing=False, coalesce_streams=True)
        client.execute(env=os.environ | {"HOME": home})
    notebook.metadata = METADATA
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "metadata" in output:
                output.metadata = {}
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = shrink(output.data["image/png"])
    return notebook


def shrink(png):
    """Return an image, in base64, with fewer pixels and colours."""
    from PIL import Image

    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    image.thumbnail((WIDEST, WIDEST))
    stream = io.BytesIO()
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(stream, "PNG", optimize=True)
    return base64.b64encode(stream.getvalue()).decode()


@pytest.mark.slow
@each_notebook
def test_a_notebook_prints_what_is_stored(path, monkeypatch):
    """Floating point may differ between machines: then store the outputs again, and read what has changed."""
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)  # of the command exaul
    assert printed(execute(path).cells) == printed(cells_of(path))


def store():
    """Execute all notebooks, and write them."""
    import nbformat

    for path in NOTEBOOKS:
        nbformat.write(execute(path), path)


if __name__ == "__main__":
    store()
