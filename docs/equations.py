"""Equations of the site: code that is an equation, such as `R_t <= 5 + 2 sqrt(t)`, becomes MathML.

So pages and docstrings keep one plain notation, which GitHub and editors show as code.
"""

import re
from html import unescape
from typing import Any
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.postprocessors import Postprocessor
from markdown.treeprocessors import Treeprocessor

GREEK = "alpha", "delta", "eta", "gamma", "kappa", "lambda", "lam", "mu", "nu", "pi", "rho", "sigma", "tau", "theta"
SPACED = {"max", "min", "sum", "in"}  # MathML has a space on both sides
FUNCTIONS = "exp", "ln", "log", *SPACED
SIGNS = {name: name for name in (*GREEK, *FUNCTIONS, "{", "}", "#", "%")} | {"*": "cdot", "lam": "lambda"}
SIGNS |= {"<=": "le", ">=": "ge", "<-": "leftarrow", "->": "to", "...": "dots", "..": "dots", "~": "sim"}

CODE = re.compile(r'["`\\@]|--|==|\w\.[a-z]|\':')  # what no equation has
OPERATOR = re.compile(r"\s([<>~]|[-+/<>]?=|<-|[-+/]|in)\s")
LETTER = rf"(?:[A-Za-z]|{'|'.join(GREEK)})"
INDEX = r"(?:[_^](?:\{[^{}]+\}|-?\w))"
FACTOR = rf"(?:{LETTER}|\d)'?{INDEX}*(?:\(\w\))?"
APPLIED = r"(?:exp|min|max|sqrt)\(.+\)|ln .+|[A-Z]_\w+\(.+\)|[A-Z]\(\w(?:, \w)?\)|E\[\w\]"
PRODUCT = re.compile(rf"{FACTOR}(?: {FACTOR})+|(?:{LETTER}|\d){INDEX}+|[a-z]'|Reg\^abs|{APPLIED}")
SYMBOL = re.compile(rf"\b(?:{LETTER}|step|aim)(?![A-Za-z])")
NAME = re.compile(rf"(?:{LETTER}|step|aim)\d?")
TOKEN = re.compile(r"\\\w+|[A-Za-z]\d|[A-Za-z]+(?:_[a-z]{2,})*|\d+,\d{3}|[\d.]*\d(?:e-?\d+)?|<=|>=|<-|->|\.+|\s+|.")
WORD = re.compile(r"[A-Za-z]{2,}(?:_[a-z]+)*|\d+,\d+")  # a token that is text, unless SIGNS has it
BREAK = re.compile(r" (?=[<>]=? |= |<- |[-+] )")  # where a long equation may be broken, outside parentheses
LONG_EQUATION = 30  # characters; it may scroll
LONG_CODE = 40  # characters, about a line on a phone
BROKEN_EQUATION = 50  # characters, from which it may be broken


def is_equation(code: str) -> bool:
    """Return whether code is an equation: symbols around an operator, or a product of symbols."""
    terms = OPERATOR.search(code) and SYMBOL.search(code)
    return not CODE.search(code) and bool(terms or PRODUCT.fullmatch(code))


def to_latex(text: str) -> str:
    """Translate the plain notation: names of Greek letters and functions, `x_t`, `e^{-x}`, `<=`, and words."""
    latex, i, token = "", 0, ""
    while i < len(text):
        before, token = token, TOKEN.match(text, i).group()
        i += len(token)
        if token in "_^":
            script, i = _script(text, i)
            latex += f"{token}{{{script}}}"
            token = before
        elif token == "sqrt":
            end = _closing(text, i)
            latex += f"\\sqrt{{{to_latex(text[i + 1 : end - 1])}}}"
            i, token = end, ")"
        elif token == "\\frac":
            middle = _closing(text, i)
            end = _closing(text, middle)
            latex += f"\\frac{{{to_latex(text[i + 1 : middle - 1])}}}{{{to_latex(text[middle + 1 : end - 1])}}}"
            i, token = end, ")"
        elif token in SIGNS:
            latex += f"\\{SIGNS[token]} "
        elif token.isspace():
            after = TOKEN.match(text + " ", i).group()
            latex += "\\quad " * (1 + len(token) // 8) if len(token) > 1 else _space(before, after)
        elif WORD.fullmatch(token):
            latex += f"\\text{{{token}}}"
        elif token == "'":
            latex += "\\text{\u2032}"  # raised by its font; as a superscript it would float above the letter
        elif token[0].isdigit() and "e" in token:
            latex += token.replace("e", " \\cdot 10^{") + "}"
        elif len(token) == 2 and token[0].isalpha():
            latex += f"{token[0]}_{token[1]}"
        else:
            latex += token
    return latex


def _space(before: str, after: str) -> str:
    """Return the space between two tokens: wide beside a word, thin between factors, and none between letters."""
    ends = {before, after}
    if ends & SPACED or not (re.match(r"[\w)}']", before) and re.match(r"[\w({\\]", after)):
        return ""
    if any(WORD.fullmatch(token) for token in ends - {*SIGNS, "sqrt"}):
        return "\\ "
    return "\\," if ends & {*FUNCTIONS, *"(){}", "sqrt", "\\frac", "\\left"} else ""


def _script(text: str, i: int) -> tuple[str, int]:
    """Return the index or power that starts at i, and its end."""
    minus = "-" if text[i] == "-" else ""
    start = i + len(minus)
    if text[start] in "{(":
        end = _closing(text, start)
        inner = to_latex(text[start + 1 : end - 1])
        return (f"-({inner})" if minus and text[start] == "(" else minus + inner), end
    end = re.compile(r"[A-Za-z]+|\d+").match(text, start).end()
    return minus + to_latex(text[start:end]), end


def _closing(text: str, start: int) -> int:
    """Return the end of the parenthesis or brace that opens at start."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] in "({[") - (text[i] in ")}]")
        if not depth:
            return i + 1
    raise ValueError(f"'{text[start:]}' is not closed")


def stacked(text: str) -> str:
    r"""Return an equation with `\frac{A}{B}` for each `A / B` of factors; within A and B the slash stays.

    A is the product before the slash, but only from the last sign, `sum_t`, `max_t`, `E` or word on: what is under
    `max_t` stays under it. B is the one factor after the slash. Where A or B is something else, the slash stays.
    """
    parts: list[tuple[str, str]] = []  # each without and with the fractions of its argument
    first, i, after_slash = 0, 0, False  # parts[first:] may be A
    while i < len(text):
        kind, part, shown = _part(text, i)
        i += len(part)
        if part == "/":
            above = "".join(part for part, _ in parts[first:])
            start = i + text.startswith(" ", i)
            kind_below, below, _ = _part(f"{text} ", start)
            if above.strip() and kind_below == "factor" and not after_slash:
                space = " " * above.startswith(" ")
                parts[first:] = [("", f"{space}\\frac{{{_ungrouped(above.strip())}}}{{{_ungrouped(below)}}}")]
                first, i = first + 1, start + len(below)
                continue
        parts.append((part, shown))
        if kind not in ("factor", "space"):
            first = len(parts)
            after_slash = kind == "slash" or (after_slash and kind == "operator")
    return "".join(shown for _, shown in parts)


def _part(text: str, i: int) -> tuple[str, str, str]:
    """Return the kind of what stands at i; it, with its index, power and argument; and this with fractions."""
    token = TOKEN.match(text, i).group()
    end = i if token in "([" else i + len(token)
    kind, shown = _kind(token, text[end : end + 1]), text[i:end]
    while (token[-1].isalnum() or token in "([") and text[end : end + 1] in set("'_^(["):
        start, sign = end, text[end]
        if sign in "([":
            end = _closing(text, start)
            inner = stacked(text[start + 1 : end - 1])
            high = "\\frac" in inner and token != "sqrt"  # its own sign is
            shown += f"\\left{sign}{inner}\\right{text[end - 1]}" if high else f"{sign}{inner}{text[end - 1]}"
        else:
            end = start + 1 if sign == "'" else _script(text, start + 1)[1]
            shown += text[start:end]
    if kind == "function" and text[end : end + 1] == " ":  # of the next factor, such as `ln H`
        kind, argument, shown_argument = _part(f"{text} ", end + 1)
        if kind == "factor":
            return kind, f"{text[i:end]} {argument}", f"{shown} {shown_argument}"
        kind = "slash"
    return kind, text[i:end], shown


def _kind(token: str, after: str) -> str:
    """Return the kind of a token: an `operator` is over all factors to its right, a `function` over the next."""
    if token in ("exp", "ln", "log", "sqrt", "max", "min", "E"):
        unapplied = "operator" if token in ("max", "min", "E") else "function"
        return "factor" if after in set("([") else unapplied
    if token in "([" or token[-1].isdigit() or NAME.fullmatch(token):
        return "factor"
    if token[0].isalpha() or token == "*" or (token == "-" and after != " "):
        return "operator"
    return {" ": "space", "/": "slash", "^": "slash"}.get(token, "sign")  # a power of something else


def _ungrouped(factor: str) -> str:
    """Return what is in the parentheses, if the factor is only these."""
    return factor[1:-1] if factor[0] == "(" and _closing(factor, 0) == len(factor) else factor


def to_mathml(latex: str, shown: str = "inline") -> str:
    """Return LaTeX as MathML, in which a minus after ``(``, ``=`` or ``<`` is a sign, without spaces."""
    return re.sub(
        "(&#x0(?:0028|003[C-E]|226[45]);</mo><mo)(?=>&#x02212;)", r'\1 form="prefix"', convert(latex, display=shown)
    )


def _pieces(text: str) -> list[str]:
    """Split an equation where a line may end."""
    ends = [0]
    for match in BREAK.finditer(text):
        piece = text[ends[-1] : match.start()]
        if sum(map(piece.count, "({[")) == sum(map(piece.count, ")}]")):
            ends.append(match.start())
    return [text[i:j] for i, j in zip(ends, [*ends[1:], len(text)], strict=True)]


def inline(text: str) -> str:
    """Return an equation within a sentence; a long one may continue on the next line."""
    pieces = [piece.strip() for piece in _pieces(" ".join(text.split()))] if len(text) > BROKEN_EQUATION else [text]
    equations = [to_mathml(("{}" if i else "") + to_latex(piece)) for i, piece in enumerate(pieces)]
    return "<wbr>".join(
        f'<span class="equation">{equation}</span>' if len(piece) > LONG_EQUATION else equation
        for piece, equation in zip(pieces, equations, strict=True)
    )


def display(text: str) -> str:
    """Return equations on separate lines, with stacked fractions."""
    lines = [to_mathml(to_latex(stacked(line)), "block") for line in text.rstrip().splitlines()]
    return f'<div class="equations">{"".join(lines)}</div>'


class InlineEquations(InlineProcessor):
    """Replaces code within a sentence."""

    def handleMatch(self, m: re.Match[str], data: str) -> Any:  # noqa: N802
        """Return the equation; nothing, if the code is not one."""
        text = m.group(2).strip()
        return (self.md.htmlStash.store(inline(text)), *m.span()) if is_equation(text) else (None, None, None)


class DisplayedEquations(Treeprocessor):
    """Replaces indented blocks of which each line is an equation."""

    def run(self, root: Element) -> None:
        """Replace them before they are highlighted."""
        for block in root.iter("pre"):
            text = unescape(block[0].text or "") if len(block) and block[0].tag == "code" else ""
            if text and all(is_equation(line) for line in text.splitlines() if line.strip()):
                block.remove(block[0])
                block.tag, block.text = "p", self.md.htmlStash.store(display(text))


class LongCode(Treeprocessor):
    """Marks long code within a sentence, which is broken at its spaces (site.css)."""

    def run(self, root: Element) -> None:
        """Add its class, after the code was found."""
        for code in root.iter("code"):
            if len(code.text or "") > LONG_CODE:
                code.set("class", "long")


class BreakableNames(Postprocessor):
    """Lets a narrow page break the long names in headings of the reference between their parts."""

    def run(self, text: str) -> str:
        """Add breaks to the names that mkdocstrings has written."""
        return re.sub(r'(?<=-name">)[\w.]{12,}', lambda name: re.sub("(?<=[_.])", "<wbr>", name[0]), text)


class Equations(Extension):
    """The extension of Python-Markdown."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """Register the processors; no page quotes, and ``>= 0`` may start a paragraph."""
        md.parser.blockprocessors.deregister("quote")
        md.inlinePatterns.register(InlineEquations(r"(?<![\\`])(`+)(?!`)(.+?)(?<!`)\1(?!`)", md), "equations", 191)
        md.treeprocessors.register(DisplayedEquations(md), "displayed-equations", 40)
        md.treeprocessors.register(LongCode(md), "long-code", 15)
        md.postprocessors.register(BreakableNames(md), "breakable-names", 0)
