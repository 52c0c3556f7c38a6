"""Names follow the glossary: one definition for each class name, and no word that another term replaced."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path for folder in ("exaul", "examples", "experiments", "benchmarks") for path in (ROOT / folder).rglob("*.py")
)

BANNED = {  # part of an identifier: what docs/results.md uses instead
    "world": "environment",
    "worlds": "environments",
    "thumb": "feedback",
    "thumbs": "feedback",
    "heard": "feedback",
    "said": "feedback, message or reply",
    "told": "feedback or message",
    "rated": "feedback, observed",
    "reacts": "is_adaptive",
    "turns": "stepwise",
    "mark": "checkpoint",
    "marks": "checkpoints",
    "marked": "at_checkpoints",
    "play": "simulate (copies), run (a sweep), step (one round of one copy)",
    "plays": "simulate, run or step",
    "playing": "simulate, run or step",
    "proved": "device_agrees or device check; a proof is mathematics",
    "who": "a noun",
    "about": "manifest, note or description",
    "lane": "copy",
    "lanes": "copies",
    "player": "learner",
    "players": "learners",
    "room": "workspace",
    "rooms": "workspaces",
}
EXCEPTIONS = {  # file and identifier: why it stays
    ("exaul/kernels/play.py", "play"): "of a game, as in the functional API of other libraries",
    ("exaul/kernels/play.py", "play_round"): "a game is played",
    ("exaul/engine/functional.py", "play"): "of a game, as in the functional API of other libraries",
    ("exaul/engine/functional.py", "play_in"): "a game is played",
    ("exaul/llm/asking_sides.py", "turns"): "turns of a dialogue",
    ("exaul/commands/convert.py", "thumb_name"): "a flag: the feedback of users, who know thumbs",
    ("exaul/serving/http/bodies.py", "thumb"): "a field of requests, which users know",
    ("exaul/llm/live.py", "turns"): "a flag: turns of a dialogue",
}
VAGUE = {"found", "place", "own", "here", "one"}  # variables that say nothing: use the noun of what they hold
VAGUE_FILES = {  # may still use them; a file that no longer does is removed from this list
    *(f"benchmarks/{name}.py" for name in ("gpu", "results")),
    "exaul/commands/plan.py",
    *(f"exaul/engine/{name}.py" for name in ("feedback", "registry")),
    *(f"exaul/kernels/{name}.py" for name in ("game", "metrics", "records")),
    *(f"exaul/kernels/{name}.py" for name in ("blocks", "delayed")),
    *(f"exaul/kernels/native/{name}.py" for name in ("ranked", "records", "backend")),
    *(f"exaul/serving/{name}.py" for name in ("abstainer", "abstainers")),
    *(f"experiments/{name}.py" for name in ("__main__", "beyond", "bounds", "impostors")),
    *(f"experiments/{name}.py" for name in ("registry", "run", "worst_case")),
}


def identifiers(tree: ast.AST) -> Iterator[str]:
    """The names that a module defines: functions, classes, parameters, fields, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
    yield from variables(tree)


def variables(tree: ast.AST) -> Iterator[str]:
    """The parameters, fields, variables and attributes that a module defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def words(identifier: str) -> set[str]:
    """The words of an identifier in snake_case or CamelCase."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", identifier)}


def test_no_class_name_is_defined_twice() -> None:
    places = defaultdict(list)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.relative_to(ROOT).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_identifier_has_a_banned_word() -> None:
    found = set()
    for path in FILES:
        name = path.relative_to(ROOT).as_posix()
        every = {*identifiers(ast.parse(path.read_text(encoding="utf-8"))), path.stem}
        found |= {(name, identifier) for identifier in every if words(identifier) & BANNED.keys()}
    assert sorted(found - EXCEPTIONS.keys()) == []
    assert sorted(EXCEPTIONS.keys() - found) == []  # an exception that is no longer needed


def test_no_variable_has_a_vague_name() -> None:
    vague = {
        path.relative_to(ROOT).as_posix()
        for path in FILES
        if VAGUE & {name.strip("_").lower() for name in variables(ast.parse(path.read_text(encoding="utf-8")))}
    }
    assert sorted(vague - VAGUE_FILES) == []
    assert sorted(VAGUE_FILES - vague) == []  # files that need no exception any more


def test_every_form_of_definition_is_seen() -> None:
    """Names that are only read are those of other modules."""
    source = """
class A:
    field: int
    def f(self, parameter, *, keyword):
        self.attribute = local = read
        for outer, (inner, _) in parameter:
            self.total += other.read.read
        return [x for x in keyword if (walrus := x)]
"""
    found = {"A", "field", "f", "self", "parameter", "keyword", "attribute", "local", "outer", "inner", "_"}
    assert set(identifiers(ast.parse(source))) == found | {"total", "x", "walrus"}
