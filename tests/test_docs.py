"""The links of the pages resolve, and the files and tests that they name exist.

The site has every page and every public name, and its equations are those of the sources.
"""

import ast
import cmath
import inspect
import pkgutil
import random
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import exaul
from tests.engine.test_imports import by_name, imports, module_of
from tests.serving.http.browser import Browser

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")), *DOCS]
EXAMPLES = {  # paths that a page asks the reader to write, or shows the form of
    "exaul/kernels/learners/hedged.py",
    "exaul/engine/environments/weekend.py",
    "exaul/engine/environments/grudge.py",
    "exaul/engine/results/learners.py",
}
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FOLDERS = "exaul", "examples", "experiments", "benchmarks", "tests", "docs"


def prose(text):
    """Remove code blocks, in which nothing is a link or a heading."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text):
    """Return the anchors of a page: its own, and those that GitHub gives its headings."""
    found = re.findall('<a id="(.+?)"></a>', text)
    for title in re.findall(r"^#+ +(.+?) *$", prose(text), re.MULTILINE):
        plain = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", title).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        again = sum(re.fullmatch(re.escape(anchor) + r"(-\d+)?", one) is not None for one in found)
        found.append(f"{anchor}-{again}" if again else anchor)
    return {*found, *re.findall(r"^::: (\S+)$", text, re.MULTILINE)}  # the site has an anchor for each name


def broken_links(page, text):
    """Return the relative links of a page, images too, whose file or anchor does not exist."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        place = page.parent / name if name else page
        if not place.exists() or (anchor and anchor not in anchors(place.read_text(encoding="utf-8"))):
            yield target


def missing_files(text):
    """Return the paths in backticks that start with a folder of the repository and do not exist."""
    for path in re.findall(r"`([\w./-]+)`", text):
        if path.split("/")[0] in FOLDERS and "/" in path and not (ROOT / path).exists():
            yield path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_anchors_and_paths_resolve(page):
    text = page.read_text(encoding="utf-8")
    assert list(broken_links(page, text)) == []
    assert set(missing_files(text)) <= EXAMPLES
    assert re.findall(r"^(?! {4})(?: +)[-*] .*", prose(text), re.MULTILINE) == []  # flat on the site


def test_broken_links_anchors_and_paths_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A `b`, c\n# A b c\n[1](none.md) [2](#a-b-c) [3](#a-b-c-1) [4](#a-b-c-2) ![5](page.md#none)")
    assert list(broken_links(page, page.read_text())) == ["none.md", "#a-b-c-2", "page.md#none"]
    assert list(missing_files("`exaul/none.py` `exaul/engine/sweep.py` `none/x`")) == ["exaul/none.py"]


def test_tests_that_the_architecture_page_names_exist():
    named = re.findall(r"`(test_\w+)` in `(tests/[\w/]+\.py)`", ARCHITECTURE)
    assert named
    for test, path in named:
        assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize(("title", "more"), [("What a sweep does", 5), ("What a decision over HTTP does", 0)])
def test_a_path_is_followed_in_at_most_fifteen_files(title, more):
    """A listed file is imported by an earlier one, or named in the tables of the registry or of the commands."""
    section = ARCHITECTURE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    path = re.findall(r"^(\d+\.|-) `(exaul/[\w/]+\.py)`", section, re.MULTILINE)
    steps = len(path) - more  # then files with the mathematics
    assert [number for number, _ in path] == [f"{n}." for n in range(1, steps + 1)] + ["-"] * more
    assert 10 <= steps <= 15
    first, *rest = (name for _, name in path)
    reached = {module for modules in by_name().values() for module in modules} | set(imports(ROOT / first))
    for path in rest:
        assert module_of(ROOT / path) in reached, path
        reached |= set(imports(ROOT / path))


def test_the_diagram_names_files_that_exist():
    text = (ROOT / "docs" / "sweep.svg").read_text(encoding="utf-8")
    named = re.findall(r"[\w/]+\.py\b", text)
    files = [path.as_posix() for path in (ROOT / "exaul").rglob("*.py")]
    assert len(named) > 10
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in files)] == []


def test_the_page_of_proofs_names_functions_that_exist():
    named = re.findall(r"`(\w+)` in\s+\[[\w/]+\.py\]\(\.\./(.+?)\)", (ROOT / "docs" / "proofs.md").read_text())
    assert len(named) > 20
    assert [name for name, path in named if f"def {name}(" not in (ROOT / path).read_text()] == []


BUILT = ROOT / "build" / "site"
REFERENCE = ROOT / "docs" / "reference" / "python" / "index.md"
GENERATED = "docs/reference/commands.md"


def test_each_page_is_in_the_navigation_once_or_reached_by_a_link():
    """At most twenty are in the menu, beside those of the Python reference, which it shows within that section."""
    navigation = re.findall(
        r'"(\S+\.md)"(?: \})?,$', (ROOT / "zensical.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    pages = [path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")]
    pages += [path.with_suffix(".md").relative_to(ROOT) for path in (ROOT / "docs" / "tutorials").glob("*.ipynb")]
    linked = set(re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8"))) - {*navigation}
    listed = {path.as_posix() for path in [*pages, *(path.relative_to(ROOT) for path in ROOT.glob("*.md"))]}
    assert sorted([*navigation, *linked & listed]) == sorted({*listed, GENERATED})
    assert len([page for page in navigation if "/python/" not in page]) < 20


def test_each_public_name_is_in_the_reference():
    pages = "\n".join(path.read_text(encoding="utf-8") for path in REFERENCE.parent.glob("*.md"))
    names = re.findall(r"^::: (\S+)$", pages, re.MULTILINE)
    assert sorted(names) == sorted(re.findall(r"\[`(exaul\.[\w.]+)`\]", REFERENCE.read_text()))
    assert {name[6:] for name in names if name.count(".") == 1} == {*exaul.__all__} < {*dir(exaul)}
    modules = [name for name in names if inspect.ismodule(pkgutil.resolve_name(name))]
    assert {name for name in names if name.count(".") > 1} == {
        *modules,
        "exaul.serving.app",
        "exaul.testing.check_learner",
    }


def test_each_field_of_a_listed_tuple_is_described():
    """By a comment or in the docstring; else the site leaves it out."""
    comment_of = pytest.importorskip("docs.fields", reason="uv sync --group docs").comment_of
    places = (name.rpartition(".") for name in re.findall(r"\[`(exaul\.[\w.]+)`\]", REFERENCE.read_text()))
    listed = {getattr(import_module(module), name, None) for module, _, name in places}
    for kind in (x for x in listed if hasattr(x, "_fields")):
        source = inspect.getsource(kind)
        nodes = [x for x in ast.walk(ast.parse(source)) if isinstance(x, ast.AnnAssign)]
        texts = {x.target.id: comment_of(x, source.splitlines()) for x in nodes}
        listed_above = re.findall(r"^ {4,8}([\w, ]+): ", kind.__doc__, re.MULTILINE)
        described = {name for names in listed_above for name in names.split(", ")} | {x for x in texts if texts[x]}
        assert described >= {*kind._fields} > set(), kind


EQUATIONS = ["R_t <= 5 + 2 sqrt(t)", "e^{-eta M}", "a_t", "s e", "w_k ~ exp(-eta L_k)", "l'", "U(N, n)", "E[W]"]
OTHERS = ["alpha", "exaul-known", "--delay d", "where(condition, x, y)", "tests/kernels/test_proofs.py"]
OTHERS += ["kernels <- engine <- serving, llm <- commands", 'log = "x"', "key '': 84% at alpha = 0.1"]
LATEX = {
    "R_{t+1} <= sqrt(2 ln H / T)": r"R_{t+1}\le \sqrt{2\,\ln \,H/T}",
    "(1 + w) m exp(-u) sqrt(eta s)": r"(1+w)\,m\,\exp (-u)\,\sqrt{\eta s}",
    "w' l' <= 30,000": "w\\text{\u2032}l\\text{\u2032}\\le \\text{30,000}",
    "a_t in {0, 1}": r"a_{t}\in \{ 0,1\} ",
    "(1 - p0 k)^-(n - W)": "(1-p_0k)^{-(n-W)}",
    "min(3e-6, 1/t)": r"\min (3 \cdot 10^{-6},1/t)",
    "z   if round t was answered": r"z\quad \text{if}\ \text{round}\ t\ \text{was}\ \text{answered}",
}


def test_equations_are_told_from_other_code_and_translated():
    equations = pytest.importorskip("docs.equations", reason="uv sync --group docs")
    assert [code for code in EQUATIONS + OTHERS if equations.is_equation(code)] == EQUATIONS
    assert {text: equations.to_latex(text) for text in LATEX} == LATEX
    assert equations.inline("x > -exp(-u) - 1 <= -y").count('<mo form="prefix">&#x02212;') == 3
    assert [equations.inline(f"R_t = {' + '.join(['s_t'] * n)}").count("<wbr>") for n in (7, 8)] == [0, 8]


STACKED = {
    "ln H / eta_T + K(x) / y": r"\frac{ln H}{eta_T} + \frac{K(x)}{y}",
    "sum_t (eta_t V / 2 - a_{t / 2})": r"sum_t \left(\frac{eta_t V}{2} - a_{t / 2}\right)",
    "ln(H / delta) max_t b (1 + eta_t b / 2) / (2 gamma_t)": (
        r"ln\left(\frac{H}{delta}\right) max_t \frac{b (1 + eta_t b / 2)}{2 gamma_t}"
    ),
    "(s_1 / step + E A / 200) / q.": r"\frac{s_1 / step + E A / 200}{q}.",
    "E (a + b)^2 / sqrt(t / 2) c / d": r"E \frac{(a + b)^2}{sqrt(t / 2)} \frac{c}{d}",
    "x / 2 / y z / 3, x / -y z / 3": r"\frac{x}{2} / y z / 3, x / -y z / 3",
    "ln E x / 2 = min x / max(y, z / 2)": r"ln E x / 2 = min \frac{x}{max(y, z / 2)}",
    "|x|^2 / 3 - .1^2 / 4 = -(x + 1) / 2": r"|x|^2 / 3 - \frac{.1^2}{4} = -\frac{x + 1}{2}",
    "answers / n = exp(sqrt(a / b))": r"answers / n = exp\left(sqrt(\frac{a}{b})\right)",
}


def test_displayed_equations_have_stacked_fractions():
    equations = pytest.importorskip("docs.equations", reason="uv sync --group docs")
    assert {text: equations.stacked(text) for text in STACKED} == STACKED
    assert equations.to_latex(r"s \frac{(1 + w) m}{y} b") == r"s\,\frac{(1+w)\,m}{y}\,b"
    assert [show("x / 2").count("<mfrac>") for show in (equations.inline, equations.display)] == [0, 1]


class Numbers(dict):
    """A random number for each name."""

    def __missing__(self, name: str) -> float:
        return random.Random(name).uniform(1, 2)


def value(equation: str) -> complex:
    """Return the value of one side of an equation; `max_t`, `sum_t` and `E` bind what follows, as a plus does."""
    names = Numbers(exp=cmath.exp, ln=cmath.log, sqrt=cmath.sqrt)
    names |= {"max": lambda x, y: x + 2 * y, "frac": lambda x: lambda y: x / y}
    python = re.sub(r"\\left|\\right|\\(?=frac)", "", equation).translate(str.maketrans("{}'", "()_"))
    python = re.sub(r"\b(?:max_t|sum_t|E)\b", "+ 1 +", re.sub(r"\bln (\w+)", r"ln(\1)", python)).replace("^", "**")
    return eval(re.sub(r"(?<=[\w)]) +(?=[\w(])", " * ", python), {}, names)


def test_stacked_fractions_have_the_value_of_the_plain_equations(monkeypatch):
    equations = pytest.importorskip("docs.equations", reason="uv sync --group docs")
    markdown = pytest.importorskip("markdown", reason="uv sync --group docs").markdown
    shown = []
    monkeypatch.setattr(equations, "display", lambda text: shown.append(text) or "")
    markdown((ROOT / "docs" / "proofs.md").read_text(encoding="utf-8"), extensions=[equations.Equations()])
    sides = [side.strip(" .,\n") for text in shown for side in re.split("<=|=|\n|,   ", text)]
    divided = [side for side in sides if "/" in side]
    assert len(divided) > 30
    for side in divided:
        stacked = equations.stacked(side)
        assert r"\frac" in stacked, side
        assert value(stacked) == pytest.approx(value(side)), side


def test_symbols_in_the_sentences_of_the_proofs_are_equations():
    """Code of one letter on this page is one, and no letter is plain, except of lemmas, steps, A, a and I."""
    site = pytest.importorskip("docs.__main__", reason="uv sync --group docs")
    text = (ROOT / "docs" / "proofs.md").read_text(encoding="utf-8").partition("\n## References")[0]
    assert site.SYMBOL.findall("`l`, `r0` `ab` ``c``") == ["l", "r0"]
    sentences = re.sub(r"(?m)^( {4}|#).*", "", text)
    rest = re.sub(r"`[^`]*`|Lemma [EX]|\(i+\)|\"T - sum", "", sentences)
    assert re.findall(r"(?<![\w'])[B-HJ-Zb-z]\b.{,20}", rest) == []


def test_long_code_in_a_sentence_has_a_class():
    equations = pytest.importorskip("docs.equations", reason="uv sync --group docs")
    markdown = pytest.importorskip("markdown", reason="uv sync --group docs").markdown
    shown = [markdown(f"`{code}`", extensions=[equations.Equations()]) for code in ("run(a)", f"run({'a' * 40})")]
    assert [text.count('<code class="long">') for text in shown] == [0, 1]


def test_a_list_keeps_its_first_number():
    markdown = pytest.importorskip("markdown", reason="uv sync --group docs").markdown
    settings = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["markdown_extensions"]
    assert '<ol start="7">' in markdown("7. a\n8. b", extensions=[x for x in settings if x != "pymdownx"])


def test_alerts_of_github_are_admonitions_and_no_page_has_other_quotes():
    site = pytest.importorskip("docs.__main__", reason="uv sync --group docs")
    assert (
        site.ALERT.sub(site.as_admonition, "a\n\n> [!WARNING]\n> b\n> c\n\nd")
        == "a\n\n!!! warning\n    b\n    c\n\nd"
    )
    pages = {page.name: prose(page.read_text(encoding="utf-8")) for page in PAGES}
    alerts = sum(len(site.ALERT.findall(text)) for text in pages.values())
    assert 0 < alerts <= 6, "a reader skips what is everywhere"
    assert [name for name, text in pages.items() if re.search("^> ", site.ALERT.sub("", text), re.MULTILINE)] == []


def test_terms_in_docstrings_are_equations_and_pages_are_links():
    fields = pytest.importorskip("docs.fields", reason="uv sync --group docs")
    assert fields.with_links("``Own``, ``own``, ``grid``") == ("[`Own`](extend.md#exaul.Own), ``own``, ``grid``")
    text = "where L_k is in ``a_t + 1`` (``docs/proofs.md``, N1), with probability 1 - delta; x.a_b\n\n    s_t"
    linked = "where `L_k` is in ``a_t + 1`` ([Proofs, N1](../../proofs.md#n1)), with probability `1 - delta`; x.a_b"
    assert fields.with_links(text) == f"{linked}\n\n    s_t"


def test_the_reference_has_each_field_with_its_default():
    """Of a NamedTuple by its entry in ``Attributes``; a flag in a help text is a field, a constant its value."""
    fields = pytest.importorskip("docs.fields", reason="uv sync --group docs")
    loaded = fields.griffe.load("exaul", extensions=fields.griffe.load_extensions(fields.FieldTexts))
    sided = loaded["kernels.learners.learner.Sided"]
    assert [(x.name, x.required) for x in sided.parameters][1:] == [("charge", True), ("prior", False)]
    assert sided["prior"].docstring.value.startswith("in (0, 1), the first mass of the last arm; ")
    assert "Attributes" not in sided.docstring.value
    assert "in place of `error`" in loaded["engine.logs.log.Layout.correct"].docstring.value
    assert loaded["engine.feedback.FeedbackFlags.expires"].value == "100000"
    types = [str(loaded["engine.sweep.Sweep"].parameters[x].annotation) for x in ("alphas", "out", "environment")]
    assert types == ["float | Iterable[float]", "str | PathLike[str] | None", "str | Oblivious | Adaptive"]
    assert [x.name for x in loaded["engine.sweep.Sweep"].parameters][:3] == ["self", "logs", "each"]
    assert [*loaded["Sweep"].attributes][:2] == ["logs", "each"]
    for kind in (exaul.Abstainer, exaul.Abstainers):
        init, names = loaded[f"{kind.__name__}.__init__"], inspect.signature(kind).parameters
        assert [x.name for x in init.parameters] == ["self", *names]
        assert init.parameters["audit"].default == "None"
        assert re.findall(r"^    (\w+): ", init.docstring.value, re.MULTILINE) == [*names, "BadInput"]


def test_the_search_has_flags_and_full_names_but_no_fields():
    site = pytest.importorskip("docs.__main__", reason="uv sync --group docs")
    members = [
        ("A", 2, "A(b)"),
        ("A.b", 3, "b: int = 1"),
        ("A.run", 3, "run()"),
        ("m", 2, "M"),
        ("m.wrong", 3, "wrong()"),
    ]
    items = [
        {"location": f"p/#exaul.{name}", "level": level, "title": name.split(".")[-1], "text": f"<pre><code>{text}"}
        for name, level, text in [*members, ("m.Case.of", 4, "of()")]
    ]
    commands = {"location": "docs/reference/commands/", "level": 1, "title": "The command line", "text": ""}
    glossary = {"location": "r/#glossary", "level": 2, "title": "Glossary", "text": "<ul><li>FDR: a\n b</li></ul>"}
    found = {item["title"]: item for item in site.searched([commands, *items, glossary])}
    flags, words = [title for title in found if title.startswith("--")], ["Glossary", "FDR"]
    assert [*found] == ["The command line", "exaul.A", "exaul.A.run", "exaul.m", "exaul.m.Case.of", *words, *flags]
    assert (found["FDR"]["text"], found["FDR"]["location"]) == ("<p>a\n b</p>", "r/#glossary")
    assert found["exaul.m"]["text"].endswith("wrong()")
    assert found["--flips"]["location"] == "docs/reference/commands/#sweep-flips"
    assert 'id="sweep-flips"' in site.listed_help("sweep")
    assert re.fullmatch("<p>P .+ on a wrong one .+</p><p>exaul sweep, exaul plan, .+</p>", found["--flips"]["text"])
    assert "the paper's" in found["--grid"]["text"]  # the search shows entities as they are
    settings = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["plugins"]["search"]
    assert re.split(settings["separator"], "Own lowest_threshold") == ["Own", "lowest_threshold"]


def test_long_names_in_a_first_column_break_between_their_parts():
    site = pytest.importorskip("docs.__main__", reason="uv sync --group docs")
    row = "| `POST /v1/chat/completions`, `tau_k`, [`exaul.RankedParams`](a.md) | `exaul_key_alpha_ratio` |"
    code = "<code>POST /<wbr>v1/<wbr>chat/<wbr>completions</code>", "<code>exaul.<wbr>Ranked<wbr>Params</code>"
    cell = f"| {code[0]}, `tau_k`, [{code[1]}](a.md) "
    assert re.sub(r"^\| [^|]*", site.with_breaks, row) == f"{cell}| `exaul_key_alpha_ratio` |"


def test_on_a_phone_help_fits_and_no_flag_or_code_of_a_table_is_broken(tmp_path):
    site = pytest.importorskip("docs.__main__", reason="uv sync --group docs")
    code = "`exaul plan --alpha 0.1 --warm-start LOG --per-day N --audits-per-day M`"
    block = f"```sh\n{code}\n```"
    assert site.INLINE_CODE.sub(site.with_whole_flags, block) == block
    inline = site.INLINE_CODE.sub(site.with_whole_flags, f"`a` --b `c` {code}").removeprefix("`a` --b `c` ")
    style = f"<style>{(ROOT / 'docs' / 'site.css').read_text(encoding='utf-8')}</style>"
    paragraphs = "".join(f"<p style='width: {width}em'>{inline}" for width in range(10, 30))
    table = f"<table><td>{'a ' * 99}</td><td><code>missing='skip'</code></td><td>{'b ' * 99}</td></table>"
    (tmp_path / "page.html").write_text(
        f"{style}<body class=md-typeset>{site.listed_help('plan')}{table}{paragraphs}"
    )
    lines = "[...document.querySelectorAll('p code span')].map(flag => flag.getClientRects().length)"
    with Browser(tmp_path / "profile") as browser:
        browser.send("Emulation.setDeviceMetricsOverride", width=400, height=800, deviceScaleFactor=1, mobile=False)
        browser.open((tmp_path / "page.html").as_uri())
        assert browser.evaluate("Math.max(...[...document.querySelectorAll('dl')].map(x => x.scrollWidth))") < 400
        assert browser.evaluate("document.querySelector('td code').clientHeight") < 24  # one line
        assert browser.evaluate(lines) == [1] * 80
        assert browser.evaluate("document.querySelector('p code').textContent") == code.strip("`")  # to copy


def test_long_names_in_headings_break_between_their_parts():
    equations = pytest.importorskip("docs.equations", reason="uv sync --group docs")
    heading = '<span class="doc-name">{}</span> regret_scaling'
    broken = equations.BreakableNames().run(heading.format("exaul.regret_scaling"))
    assert broken == heading.format("exaul.<wbr>regret_<wbr>scaling")


def test_code_of_the_reference_is_no_wider_than_its_column():
    """Without scrolling, at the widths of site.css."""
    pages = "\n".join(path.read_text(encoding="utf-8") for path in DOCS if "reference" in path.parts)
    blocks = re.findall(r"^```\w+\n(.*?)^```", pages, re.DOTALL | re.MULTILINE)
    assert len(blocks) > 20
    assert [line for block in blocks for line in block.splitlines() if len(line) > 104] == []


def test_public_functions_say_what_they_take_and_return():
    """A type other than ``Any``; ``LearnerParams`` and an ``Array`` may be anything."""
    functions = [x for name in exaul.__all__ if inspect.isfunction(x := getattr(exaul, name))]
    assert len(functions) > 10
    for function in functions:
        unknown = [name for name, kind in inspect.get_annotations(function).items() if kind is Any]
        assert set(unknown) <= {"params", "alpha", "lam"}, function


def test_a_built_site_needs_no_other_host_and_links_to_files_that_exist():
    pages = sorted(BUILT.rglob("index.html"))
    if not pages:
        pytest.skip("uv run --group docs python -m docs")
    missing = []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "<title>exaul" not in text
        loaded = re.findall(r'(?:\ssrc|<link[^>]*\shref)="([^"]+)"', text)
        linked = re.findall(r'<a\s[^>]*?href="([^"]+)"', text)
        assert [url for url in loaded if urlsplit(url).netloc] == [], page
        for url in map(urlsplit, [*loaded, *linked]):
            target = page.parent / unquote(url.path)
            if not url.scheme and not (target / "index.html" if target.is_dir() else target).is_file():
                missing.append((page.relative_to(BUILT).as_posix(), url.path))
    assert missing == []
