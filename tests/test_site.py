"""The site has every page and every public name, and its equations are those of the sources."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import exaul

ROOT = Path(__file__).parents[1]
BUILT = ROOT / "build" / "site"
REFERENCE = ROOT / "docs" / "reference" / "python.md"
GENERATED = "docs/reference/commands.md"


def test_each_page_is_in_the_navigation_once_or_reached_by_a_link():
    """At most twenty are in the menu."""
    navigation = re.findall(
        r'"(\S+\.md)"(?: \})?,$', (ROOT / "zensical.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    pages = [path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "python"]
    pages += [path.with_suffix(".md").relative_to(ROOT) for path in (ROOT / "docs" / "tutorials").glob("*.ipynb")]
    linked = set(re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8"))) - {*navigation}
    listed = {path.as_posix() for path in [*pages, *(path.relative_to(ROOT) for path in ROOT.glob("*.md"))]}
    assert sorted([*navigation, *linked & listed]) == sorted({*listed, GENERATED})
    assert len(navigation) <= 20


def test_each_public_name_is_in_the_reference():
    """And is listed with the page that has it, where earlier links to one page lead."""
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (REFERENCE.parent / "python").glob("*.md"))
    names = re.findall(r"^::: (\S+)$", pages, re.MULTILINE)
    assert sorted(names) == sorted(re.findall(r"`(exaul\.[\w.]+)`[,\n]", REFERENCE.read_text()))
    assert {name[6:] for name in names if name.count(".") == 1} == {*exaul.__all__}


EQUATIONS = ["R_t <= 5 + 2 sqrt(t)", "e^{-eta M}", "a_t", "s e", "w_k ~ exp(-eta L_k)"]
OTHERS = ["alpha", "exaul-known", "--delay d", "where(condition, x, y)", "tests/kernels/test_proofs.py"]
OTHERS += ["kernels <- engine <- serving, llm <- commands", 'log = "x"']
LATEX = {
    "R_{t+1} <= sqrt(2 ln H / T)": r"R_{t+1}\le \sqrt{2\ \ln \ H/T}",
    "(1 - p0 k)^-(n - W)": "(1-p_0k)^{-(n-W)}",
    "min(3e-6, 1/t)": r"\min (3 \cdot 10^{-6},1/t)",
    "z   if round t was answered": r"z\quad \text{if}\ \text{round}\ t\ \text{was}\ \text{answered}",
}


def test_equations_are_told_from_other_code_and_translated():
    equations = pytest.importorskip("docs.equations", reason="uv sync --group docs")
    assert [code for code in EQUATIONS + OTHERS if equations.is_equation(code)] == EQUATIONS
    assert {text: equations.to_latex(text) for text in LATEX} == LATEX


def test_a_built_site_needs_no_other_host_and_links_to_files_that_exist():
    pages = sorted(BUILT.rglob("index.html"))
    if not pages:
        pytest.skip("uv run --group docs python -m docs")
    assert not (BUILT / "sitemap.xml").exists()  # it would be empty
    missing, descriptions = [], set()
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "<title>exaul" not in text
        loaded = re.findall(r'(?:\ssrc|<link[^>]*\shref)="([^"]+)"', text)
        linked = re.findall(r'<a\s[^>]*?href="([^"]+)"', text)
        descriptions.add(re.search('name="description" content="(.+?)"', text)[1])
        assert [url for url in loaded if urlsplit(url).netloc] == [], page
        for url in map(urlsplit, [*loaded, *linked]):
            target = page.parent / unquote(url.path)
            if not url.scheme and not (target / "index.html" if target.is_dir() else target).is_file():
                missing.append((page.relative_to(BUILT).as_posix(), url.path))
    assert missing == []
    assert len(descriptions) == len(pages)
