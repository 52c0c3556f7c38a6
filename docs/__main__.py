"""Build the site into ``build/site``, or serve it: ``uv run --group docs python -m docs [serve]``.

``python -m docs gallery [NAME ...]`` draws the figures of ``docs/gallery`` again, or those named; all take half an
hour.
"""

import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from html import escape
from io import StringIO
from pathlib import Path
from shutil import copy, copytree, ignore_patterns, rmtree
from tempfile import TemporaryDirectory
from textwrap import dedent
from typing import Any
from unittest.mock import patch

from zensical.main import cli

from docs.equations import LONG_CODE, inline
from exaul.commands.main import COMMAND_MODULES
from exaul.commands.main import main as run_command
from exaul.commands.terminal import refuse

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"  # laid out like the repository, so that a link works here as on GitHub
SCALING_CODE = """
from exaul import Sweep, regret_scaling

sweep = Sweep(learners=("exaul", "ew"), alphas=(0.1,), trials=40, arms=100, out="out")
regret_scaling(sweep, [2000, 4000, 8000, 16000, 32000])
"""
MANY_GAMES_CODE = "import os, examples.many_games; os.mkdir('out'); examples.many_games.main('out/many-games.png')"
LANDING_CODE = """
from pathlib import Path

from exaul import Sweep, run
from exaul.engine.results.advice import advised
from exaul.engine.results.answered_figure import answered_against_wrong
from exaul.engine.results.figures import save

meanings = {"no-abstention": "every answer shown", "exaul": "the paper's learner", "aci-rank-from-log": "advised"}
result = run(Sweep(learners=tuple(meanings)))
trials, source = result.trials, result.manifest["sources"][0]
cell = source["name"], 0.05  # the only alpha
best, ceilings = {cell: advised(result.advice, trials)[0.05]}, {cell: source["answerable"]["0.05"]}
named = trials.assign(learner=[f"{name}, {meanings[name]}" for name in trials["learner"]])
figure = answered_against_wrong(named, best, ceilings)
for text in figure.axes[0].texts:  # the page names only the advised learner
    text.set_text(text.get_text().removeprefix("no-abstention, ").removeprefix("exaul, "))
figure.set_figheight(2.6)
figure.supxlabel("")  # the page says what is shown
Path("out").mkdir()
save(figure, Path("out/landing"))
"""
GALLERY = {  # by name of the figure: Python's arguments to draw it, and the path of the drawn file
    "landing": (("-c", LANDING_CODE), "landing"),
    "answered": (("-m", "exaul", "sweep", "--out", "out"), "answered"),
    "weeks": (("-m", "exaul", "plan", "--per-day", "5000", "--audits-per-day", "30", "--out", "out"), "weeks"),
    "regret-scaling": (("-c", SCALING_CODE), "regret-scaling"),
    "many-games": (("-c", MANY_GAMES_CODE), "many-games"),
} | {
    name: (("-m", "experiments", figure.partition("/")[0], "--out", "out"), figure)
    for name, figure in (
        ("single-shift", "single-shift/fdr"),
        ("alpha-shift", "alpha-shift/fdr-by-alpha"),
        ("long", "long-stochastic/fdr"),
        ("bounds", "bounds/regret-by-horizon"),
        ("feedback", "feedback/fdr"),
    )
}
INLINE_CODE = re.compile(r"^ *```.*?^ *```|(?<!`)`([^`]+)`(?!`)", re.DOTALL | re.MULTILINE)  # or a block, without 1
SYMBOL = re.compile(r"(?<!`)`([A-Za-z][01]?)`(?!`)")
ENTRY = re.compile(r"^  (\S.*?)(?:  +|\n {8,})(.+)", re.MULTILINE)  # of a help: a flag or argument, and its text
WORD = re.compile(r"<li>([^<:]+): (.+?)</li>", re.DOTALL)  # of the glossary, with its text
ALERT = re.compile(r"^> \[!(\w+)\]\n((?:> .*\n)+)", re.MULTILINE)
FIELD = re.compile(r"<pre><code>\w+(:| =)")
METHOD = re.compile(r"\.[A-Z]\w*\.\w+$")
COMMANDS_INTRODUCTION = """# The command line

Each flag is a link to itself. These pages show how to use the commands:

- `inspect`, `sweep`, `profiles` and `convert`: [Your own log](../logs.md)
- `plan` and `verify`: [What is promised](../promises.md#numbers)
- `serve` and `audits`: [The service: gateway and audits](../service.md) and [in production](../operations.md)
- `journal`: [The learner in your program](../online.md#many-keys-and-crashes)
- `collect`, `score` and `live`: [Language models](../language-models.md)
- `figures`: [Results](../results.md#figures)
- `rerun`, `merge` and `--resume`: [Long sweeps](../long-sweeps.md)
"""


def gallery(names: list[str]) -> None:
    """Draw the figures of these names, or all. Exit with status 2 if a name is unknown."""
    if unknown := [name for name in names if name not in GALLERY]:
        sys.exit(refuse("docs", f"gallery: {unknown[0]} is unknown; one of {', '.join(GALLERY)}"))
    for name in names or GALLERY:
        arguments, figure = GALLERY[name]
        with TemporaryDirectory() as folder:
            env = os.environ | {"PYTHONPATH": str(ROOT)}
            subprocess.run([sys.executable, *arguments], cwd=folder, env=env, check=True)
            copy(Path(folder) / "out" / f"{figure}.png", ROOT / "docs" / "gallery" / f"{name}.png")


def help_of(name: str) -> str:
    """Return the help of a command, with each text in one line."""
    with redirect_stdout(StringIO()) as printed, patch.dict(os.environ, COLUMNS="9999"):
        run_command([*name.split(), "--help"])
    return printed.getvalue().strip()


def listed_help(name: str) -> str:
    """Return the help of a command as Markdown: lists of HTML by group, where each flag is a link to itself."""
    usage, description, *groups = help_of(name).split("\n\n")
    parts = [f"{description[0].upper()}{description[1:]}.", f"```sh\n{usage.removeprefix('usage: ')}\n```"]
    anchor = name.replace(" ", "-")
    for title, _, body in (group.partition("\n") for group in groups):
        entries = ENTRY.sub(r"<dt><code>\1</code></dt><dd>\2</dd>", escape(body, quote=False))
        entries = re.sub(
            "(?<=<dt><code>)--([a-z-]+)", rf'<a id="{anchor}-\1" href="#{anchor}-\1">\g<0></a>', entries
        )
        entries = re.sub(r"'(exaul [a-z -]+)'|(?<=[ (])(--[\w-]+)", r"<code>\1\2</code>", entries)
        entries = re.sub(r"docs/([a-z-]+)\.md", r'<a href="../\1.md">\g<0></a>', entries)
        if title == "examples:":
            parts.append(f"Examples:\n\n```sh\n{dedent(body)}\n```")
        elif title != "options:":  # --help alone
            parts.append(f"**{title.capitalize()}**\n\n<dl>\n{entries}\n</dl>")
    return "\n\n".join(parts)


def searched(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries of the search, which lists matches in titles first, and of these the earliest in a title.

    So names of the Python reference are full ones, and fields and the functions of a module are text of its entry,
    lest all of them come before the pages. Each flag is an entry, which lists its commands, and so is each word of
    the glossary, with its text.
    """
    kept: list[dict[str, Any]] = []
    owner: dict[str, Any] = {}
    for item in items:
        name = item["location"].partition("#")[2]
        if not name.startswith("exaul."):
            kept.append(item)
        elif item["level"] == 2:
            kept.append(owner := item | {"title": name})
        elif METHOD.search(name) and not FIELD.match(item["text"]):
            kept.append(item | {"title": name})
        else:
            owner["text"] += item["text"]
        if name == "glossary":
            kept += [item | {"title": word, "text": f"<p>{text}</p>"} for word, text in WORD.findall(item["text"])]
    flags: dict[str, list[tuple[str, str]]] = {}
    for command in COMMAND_MODULES:
        for flag, text in ENTRY.findall(help_of(command)):
            if name := re.match("--([a-z-]+)", flag):
                flags.setdefault(name[1], []).append((command, f"{flag[name.end() :]} {text}".strip()))
    page = next(item for item in items if item["location"].endswith("docs/reference/commands/"))
    for flag, uses in flags.items():
        text = (
            f"<p>{escape(uses[0][1], quote=False)}</p><p>{', '.join(f'exaul {command}' for command, _ in uses)}</p>"
        )
        location = f"{page['location']}#{uses[0][0].replace(' ', '-')}-{flag}"
        kept.append(page | {"location": location, "level": 2, "title": f"--{flag}", "text": text})
    return kept


def as_admonition(alert: re.Match[str]) -> str:
    """Turn an alert of GitHub into an admonition of the site."""
    return f"!!! {alert[1].lower()}\n{re.sub('^> ', '    ', alert[2], flags=re.MULTILINE)}"


def with_breaks(cell: re.Match[str]) -> str:
    """Let a narrow table break the long names of its first column between their parts, not within a word."""
    parts = r"(?<=[/_.])|(?<=[a-z])(?=[A-Z])"
    return re.sub(r"`([\w /.]{12,})`", lambda x: f"<code>{re.sub(parts, '<wbr>', x[1])}</code>", cell[0])


def with_whole_flags(code: re.Match[str]) -> str:
    """Let code of several words in a line break at its spaces, not after the hyphens of a flag (site.css)."""
    if not re.fullmatch(r"[\w\s./:,='-]+\s--[\w\s./:,='-]+", code[1] or ""):
        return code[0]
    flags = re.sub(r"--[\w-]+", r"<span>\g<0></span>", code[1])
    return f'<code class="long">{flags}</code>' if len(code[1]) > LONG_CODE else f"<code>{flags}</code>"


def notebook_page(path: Path) -> str:
    """Return an executed notebook as Markdown, with its text outputs and its images."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                image = "".join("".join(data["image/png"]).split())
                parts.append(f"![Output of the code above](data:image/png;base64,{image})")
            else:
                parts.append(f"```text\n{''.join(data['text/plain']).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str]) -> None:
    """Draw the gallery; or gather the pages, write that of the command line from its flags, and run Zensical."""
    if arguments[0] in ("-h", "--help"):
        print(__doc__, end="")
        return
    if arguments[0] == "gallery":
        gallery(arguments[1:])
        return
    rmtree(PAGES, ignore_errors=True)
    copytree(ROOT / "docs", PAGES / "docs", ignore=ignore_patterns("*.py", "__pycache__", "*.ipynb"))
    for folder in ("examples", "exaul/kernels", "exaul/engine"):  # files that pages link to
        copytree(ROOT / folder, PAGES / folder, ignore=ignore_patterns("__*"))
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "CITATION.cff"):
        copy(ROOT / name, PAGES)
    page = PAGES / "docs" / "reference" / "commands.md"
    sections = [f"## exaul {name}\n\n{listed_help(name)}\n" for name in COMMAND_MODULES]
    page.write_text("\n".join([COMMANDS_INTRODUCTION, *sections]), encoding="utf-8")
    for notebook in (ROOT / "docs" / "tutorials").glob("*.ipynb"):
        page = (PAGES / notebook.relative_to(ROOT)).with_suffix(".md")
        page.write_text(notebook_page(notebook), encoding="utf-8")
    for page in PAGES.rglob("*.md"):
        text = page.read_text(encoding="utf-8").replace(".ipynb)", ".md)")  # on the site, a notebook is a page
        text = ALERT.sub(as_admonition, re.sub(r"^\| [^|]*", with_breaks, text, flags=re.MULTILINE))
        if page.name == "proofs.md":  # elsewhere code that is one letter may be a name
            text = SYMBOL.sub(lambda x: f"<span>{inline(x[1])}</span>", text)
        page.write_text(INLINE_CODE.sub(with_whole_flags, text), encoding="utf-8")
    cli([*arguments, "--config-file", str(ROOT / "zensical.toml")], standalone_mode=arguments[0] != "build")
    index = ROOT / "build" / "site" / "search.json"  # of a build, which returns; `serve` has that of Zensical
    found = json.loads(index.read_text(encoding="utf-8"))
    index.write_text(json.dumps(found | {"items": searched(found["items"])}), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:] or ["build", "--strict", "--clean"])  # its cache does not notice changed docstrings
