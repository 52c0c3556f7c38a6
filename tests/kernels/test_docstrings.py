"""Every public function of the kernels says what it takes, in which shape, and where it comes from."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"
ARRAYS = re.compile(r"\b(NDArray|ArrayLike|Array|Floats|Rows|Groups|Block|Parameters|Any)\b")
SHAPE = re.compile(r"\[(?:|\.{1,3}|[A-Za-z][^\[\]]*|\d[^\[\]]*|\., [^\[\]]*)\]|any shape|broadcast")
SOURCE = re.compile(
    r"\beq\. \d|[Tt]heorem|Lemma \d|Algorithms? \"|section|appendix|every algorithm of the paper"
    r"|beyond\.md|online\.md|\b(?:19|20)\d\d\b"  # the year of a citation
)
PLUMBING = {
    "cache.py",
    "errors.py",
    "toolchain.py",
    "compile.py",
    "threads.py",
    "memory.py",
    "rules.py",
}  # no mathematics: nothing to cite, no shapes
MAKERS = {"make"}  # their source is that of the loops that they choose from


def functions():
    """The module's path, its tree, and each public function or method in it."""
    for path in sorted(KERNELS.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield path, tree, node, node.name
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                        yield path, tree, method, f"{node.name}.{method.name}"


def missing(path, tree, node):
    """What the docstring of a function lacks."""
    text = ast.get_docstring(node)
    if text is None:
        return ["a docstring"]
    flat = re.sub(r"\s+", " ", text)
    lacks = []
    parameters = [x for x in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs) if x.arg != "self"]
    parameters += [x for x in (node.args.vararg, node.args.kwarg) if x]
    compiled = bool(node.decorator_list) and all(x.annotation is None for x in parameters)  # scalars and arrays
    arrays = compiled or any(x.annotation and ARRAYS.search(ast.unparse(x.annotation)) for x in parameters)
    if arrays and path.name not in PLUMBING and not SHAPE.search(flat):
        lacks.append("a shape in brackets")
    _, _, entries = text.partition("Args:\n")
    if not re.search(r"\b[Aa]rguments as (of|in) ``", flat):
        lacks += [f"the argument {x.arg}" for x in parameters if not re.search(rf"^    {x.arg}: ", entries, re.M)]
    if node.returns is None or ast.unparse(node.returns) != "None":
        returns = "Returns:" in text or "return" not in {type(x).__name__.lower() for x in ast.walk(node)}
        is_property = any(ast.unparse(x).endswith("property") for x in node.decorator_list)
        if not returns and not is_property:
            lacks.append("what it returns")
    whole = re.sub(r"\s+", " ", flat + " " + (ast.get_docstring(tree) or ""))
    if path.name not in PLUMBING and node.name not in MAKERS and not SOURCE.search(whole):
        lacks.append("its source, in the paper or elsewhere")
    return lacks


@pytest.mark.parametrize(
    ("path", "tree", "node"),
    [pytest.param(*x[:3], id=f"{x[0].relative_to(KERNELS).as_posix()}:{x[3]}") for x in functions()],
)
def test_a_public_function_of_the_kernels_is_documented(path, tree, node):
    assert missing(path, tree, node) == []


def test_the_worked_learner_of_contributing_is_documented():
    """The example would pass as a file of the learners' folder."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    code = re.search(r"kernels/learners/hedged\.py`:\n\n```python\n(.*?)```", text, re.DOTALL)
    tree = ast.parse(code[1])
    assert ast.get_docstring(tree)
    found = [x for x in tree.body if isinstance(x, ast.FunctionDef)]
    assert found
    for node in found:
        assert missing(KERNELS / "learners" / "hedged.py", tree, node) == []
        assert all(x.annotation for x in node.args.args)


def test_every_module_and_public_class_of_the_kernels_has_a_docstring():
    for path in KERNELS.rglob("*.py"):
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree), path
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path}: {node.name}"
