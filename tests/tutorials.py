"""Execute the notebooks in ``docs/tutorials`` and store their outputs: ``python -m tests.tutorials``.

Only what a reader sees is stored: no times, no names of this machine, and images in few colours.
"""

import base64
import io
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
METADATA = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
WIDEST, COLOURS = 800, 128  # of an image, so that a notebook stays small


def execute(path: Path) -> NotebookNode:
    """Return the notebook with the outputs of a new kernel. Raise CellExecutionError if a cell fails."""
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


def shrink(png: str) -> str:
    """Return an image, in base64, with fewer pixels and colours."""
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    image.thumbnail((WIDEST, WIDEST))
    stream = io.BytesIO()
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(stream, "PNG", optimize=True)
    return base64.b64encode(stream.getvalue()).decode()


def main() -> None:
    """Execute all notebooks, and write them."""
    for path in NOTEBOOKS:
        nbformat.write(execute(path), path)


if __name__ == "__main__":
    main()
