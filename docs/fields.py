"""Fields and constants in the API reference, documented by their comment or the help text of their flag."""

import ast
import re
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import griffe

import exaul
from docs.equations import LETTER

SEVERAL = re.compile(r"^    (\w+(?:, \w+)+): (.*(?:\n {8}.*)*)", re.MULTILINE)  # arguments of one explanation
KEPT = r"(`+).+?\2|(?<=\n\n)    [^\n]*"  # code, and displayed equations
TERM = rf"{LETTER}_\w|(?:[A-Z]|1) [-/] (?:\d|{LETTER})"  # L_k, H - 1, 1 - delta and the like in a sentence
EQUATION = re.compile(rf"({KEPT})|(?<![\w.])({TERM})(?!\w)", re.DOTALL)
PAGE = re.compile(r"`*docs/([\w-]+)\.md`*(?:, ([A-Z]\d)\b)?")  # and perhaps a statement of it
REFERENCE = Path(__file__).with_name("reference").joinpath("python", "index.md").read_text(encoding="utf-8")
ENTRIES = dict(re.findall(r"\[`(exaul\.[\w.]+)`\]\((.+?)\)", REFERENCE))  # by full name
ENTRIES |= {  # and by the last part; the other short names are arguments or modules, too
    name: entry for path, entry in ENTRIES.items() if re.search("[A-Z_]|^(make|play)$", name := path.split(".")[-1])
}
ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def link_of(page: re.Match[str]) -> str:
    """Return a link to a page, or to a statement of it; the reference is two folders below the pages."""
    title = Path(__file__).with_name(f"{page[1]}.md").read_text(encoding="utf-8").partition("\n")[0].strip("# ")
    return f"[{title}{f', {page[2]}' * bool(page[2])}](../../{page[1]}.md{f'#{page[2]}'.lower() * bool(page[2])})"


def with_links(text: str) -> str:
    """Make links of the pages and public names in a docstring, and code, which becomes an equation, of terms."""
    named = re.sub(r"``([\w.]+)``", lambda x: f"[`{x[1]}`]({ENTRIES[x[1]]})" if x[1] in ENTRIES else x[0], text)
    return EQUATION.sub(lambda x: x[1] or f"`{x[3]}`", PAGE.sub(link_of, named))


def comment_of(node: Any, lines: list[str]) -> str:
    """Return the comment above a statement and behind it."""
    comments = [lines[node.end_lineno - 1][node.end_col_offset :]]
    number = node.lineno - 2
    while lines[number].lstrip().startswith("#"):
        comments.insert(0, lines[number])
        number -= 1
    return " ".join(comment.strip("# ") for comment in comments)


def given_of(annotation: Any) -> Any:
    """Return the type of a field's argument, for which ``Many`` and ``Field`` of ``checks.py`` stand."""
    text = re.sub(r"^Many\[(.+)\]$", r"\1 | Iterable[\1]", ast.unparse(annotation))
    if text.startswith("Field["):
        text = ast.unparse(annotation.slice.elts[1])
    return ast.parse(text.replace("PathText", "str | PathLike[str]"), mode="eval").body


class FieldTexts(griffe.Extension):
    """Documents the fields of classes, whose docstrings describe the class as a whole."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Make links and equations, and an entry of each argument, in ``x, y: text``, too."""
        if obj.docstring:
            text = with_links(obj.docstring.value)
            obj.docstring.value = SEVERAL.sub(
                lambda x: "\n".join(f"    {name}: {x[2]}" for name in x[1].split(", ")), text
            )

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Add the name that ``exaul.serving`` imports on first use, and the arguments in ``**configuration``.

        The fields of ``Sweep`` itself come before those that it inherits.
        """
        griffe.DataclassesExtension().on_package(pkg=pkg)  # else it comes after this one
        sweep = pkg["engine.sweep.Sweep"]
        own = sorted(sweep["__init__"].parameters, key=lambda x: x.name not in ("self", *sweep.members))
        sweep["__init__"].parameters = griffe.Parameters(*own)
        sweep.members |= sweep.inherited_members
        serving = pkg["serving"]
        serving.set_member("app", griffe.Alias("app", "exaul.serving.http.application.app"))
        both = serving["configuration.SharedConfiguration"], serving["configuration.AbstainerConfiguration"]
        settings = {name: field for owner in both for name, field in owner.attributes.items()}
        for owner in (serving["abstainer.Abstainer"], serving["abstainers.Abstainers"]):
            init, names = owner["__init__"], signature(getattr(exaul, owner.name)).parameters
            given = {x.name: x for x in init.parameters}
            for name in names.keys() - given:
                kind, field = griffe.ParameterKind.keyword_only, settings[name]
                given[name] = griffe.Parameter(name, annotation=field.annotation, kind=kind, default=field.value)
            init.parameters = griffe.Parameters(*(given[name] for name in ("self", *names)))
            head, entries, rest = re.split(r"(?<=\bArgs:\n)|(?=\n\nRaises:)", init.docstring.value)
            texts = {name: f"{settings[name].docstring.value}." for name in names.keys() & settings}
            texts |= dict(ATTRIBUTE.findall(entries))
            init.docstring.value = head + "\n".join(f"    {name}: {texts[name]}" for name in names) + rest

    def on_class_node(self, *, node: Any, **kwargs: Any) -> None:
        """Add the decorator that ``Configuration`` applies, which gives a class, or a NamedTuple, its signature."""
        is_configuration = " = setting(" in ast.unparse(node)
        if is_configuration or "NamedTuple" in map(ast.unparse, node.bases):
            decorator = ast.parse(f"dataclasses.dataclass(kw_only={is_configuration})", mode="eval").body
            node.decorator_list.append(ast.copy_location(decorator, node))

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Move each entry of ``Attributes`` to its field, which has a link, a type and perhaps a default."""
        if cls.docstring:
            cls.docstring.value, _, entries = cls.docstring.value.partition("\n\nAttributes:\n")
            for name, text in ATTRIBUTE.findall(entries):
                cls.members[name].docstring = griffe.Docstring(re.sub(" +", " ", text), parent=cls.members[name])

    def on_attribute_instance(self, *, node: Any, attr: griffe.Attribute, agent: Any, **kwargs: Any) -> None:
        """Read the source: ``name: type = default  # comment``, or ``name: type = setting(default, text, ...)``."""
        if attr.docstring or not isinstance(node, ast.AnnAssign | ast.Assign) or agent.current.is_function:
            return
        text = comment_of(node, agent.code.splitlines())
        if " = setting(" in ast.unparse(node):
            owner = getattr(import_module(agent.current.module.path), agent.current.name)
            field = owner.__dataclass_fields__[attr.name]
            text = re.sub(r"--([a-z-]+)", lambda x: f"`{x[1].replace('-', '_')}`", field.metadata["help"])
            text, attr.value = text.format(exaul="exaul"), repr(field.default)
            attr.annotation = griffe.safe_get_annotation(given_of(node.annotation), parent=agent.current)
        if text:
            attr.docstring = griffe.Docstring(with_links(text), parent=attr)
