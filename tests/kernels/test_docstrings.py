"""Public modules, classes and functions of the package have docstrings.

Shapes, units, ranges, errors and sources stand in the docstrings of what the API reference shows; a protocol is
documented where it is defined, and its implementations say only what is specific to them. Reviewers see to that;
this test sees to what a program can tell.
"""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "exaul"
FILES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
EMPTY = re.compile(r"^\s*\w+: not read\b", re.MULTILINE)


def public(tree):
    """The public classes and functions of a module, and the public methods of its classes."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, node
            if isinstance(node, ast.ClassDef):
                methods = (x for x in node.body if isinstance(x, ast.FunctionDef) and not x.name.startswith("_"))
                yield from ((f"{node.name}.{x.name}", x) for x in methods)


@pytest.mark.parametrize("name", FILES)
def test_public_functions_have_a_docstring(name):
    source = FILES[name].read_text()
    assert not EMPTY.search(source)  # a shared signature is documented once, in the protocol
    tree = ast.parse(source)
    assert ast.get_docstring(tree)
    for function, node in public(tree):
        text = ast.get_docstring(node)
        assert text, function
        assert text.splitlines()[0].endswith((".", ":")), function
        if "Args:" in text and isinstance(node, ast.FunctionDef):
            taken = {x.arg for x in ast.walk(node.args) if isinstance(x, ast.arg)}
            said = set(re.findall(r"^    (\w+): ", text.partition("Args:\n")[2].partition("\n\n")[0], re.MULTILINE))
            assert said <= taken, f"{function} documents {sorted(said - taken)}, which it does not take"
