"""One definition for each class name, and no variable whose name says nothing.

And docstrings do not name what is not there. Shapes, units, ranges, errors and sources stand in the docstrings of
what the API reference shows; reviewers see to that.
"""

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = "exaul", "examples", "experiments", "benchmarks"
TREES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
}

VAGUE = {  # variables that say nothing: use the noun of what they hold
    *("found", "place", "own", "here", "there", "one", "of", "at", "made", "whole", "every", "some", "same"),
    *("others", "wanted", "what", "which", "present", "inside", "seen", "taken", "most", "rest", "usual"),
    *("before", "after"),
}
VAGUE_FIELDS = {("exaul/serving/entries.py", "at")}  # a column of the journal


def names(tree: ast.AST) -> tuple[list[str], list[str]]:
    """The classes and the variables (parameters, fields and attributes too) of a module."""
    classes, variables = [], []
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name):
                classes.append(name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                variables.append(name)
    return classes, variables


NAMES = {path: names(tree) for path, tree in TREES.items()}


def test_no_class_name_is_defined_twice() -> None:
    times = Counter(name for classes, _ in NAMES.values() for name in classes)
    assert {name for name, count in times.items() if count > 1} == set()


def test_no_variable_has_a_vague_name() -> None:
    vague = {
        (path, name) for path, (_, variables) in NAMES.items() for name in variables if name.strip("_") in VAGUE
    }
    assert vague == VAGUE_FIELDS


def test_only_arguments_that_are_taken_are_documented() -> None:
    """And read: a shared signature is documented once, in the protocol. Ruff sees to missing docstrings."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and "Args:\n" in (text := ast.get_docstring(node) or ""):
                given = text.partition("Args:\n")[2].partition("\n\n")[0]
                documented = set(re.findall(r"^    (\w+): ", given, re.MULTILINE))
                taken = {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}
                assert documented <= taken, (path, node.name)
                assert not re.search(r"^ *\w+: not read\b", given, re.MULTILINE), (path, node.name)
