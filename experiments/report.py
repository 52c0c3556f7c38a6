"""The report: the table of claims, what agrees with the paper, and one self-contained page."""

import base64
import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exaul.engine.logs.files import Table
from exaul.engine.logs.profiles import PROFILES
from exaul.engine.results.figures import DPI
from exaul.engine.results.text_table import format_table
from experiments.claims import CHECK, CLAIM, LEMMA, REGRESSION
from experiments.registry import EXPERIMENTS, find_experiment

KINDS = CLAIM, CHECK, REGRESSION
NONE = "none"  # where nothing is judged
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1100px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; } h2 { font-size: 1.25em; margin-top: 2.2em; border-top: 1px solid #ccc; padding-top: .8em; }
table { border-collapse: collapse; margin: .8em 0; font-size: .9em; display: block; overflow-x: auto; }
th, td { text-align: left; padding: .25em .8em .25em 0; border-bottom: 1px solid #e4e4e4; vertical-align: top; }
figure { display: inline-block; margin: 1em 1em 0 0; max-width: 100%; } img { max-width: 100%; height: auto; }
figcaption, .small { color: #555; font-size: .85em; }
pre { font-size: .8em; overflow-x: auto; background: #f6f6f6; padding: 1em; }
"""


def claims_table(claims: Mapping[str, Table], broken: Mapping[str, Table], is_default: bool) -> Table:
    """Return one row per claim, check and regression limit.

    Its columns are ``experiment, kind, claim, holds, measured, expected, quote``, with impostors ``broken_by``, and
    ``why``. ``holds`` is true, false, or ``default records``, which are needed to tell: a regression limit says
    nothing about others, whose ``is_default`` is false.
    """
    rows = []
    for name, experiment_claims in claims.items():
        for number, claim in enumerate(experiment_claims.itertuples()):
            is_judged = is_default or claim.kind != REGRESSION
            row: dict[str, Any] = {"experiment": name, "kind": claim.kind, "claim": claim.claim}
            row |= {"holds": str(claim.holds).lower() if is_judged else "default records"}
            row |= {"measured": claim.measured, "expected": f"{claim.relation} {claim.limit:.6g}"}
            row["quote"] = claim.quote
            if name in broken:
                verdicts = broken[name].iloc[number, 2:]
                row["broken_by"] = "; ".join(verdicts.index[claim.holds & verdicts.astype(bool)])
            rows.append(row | {"why": claim.why if row["holds"] == "false" else ""})
    return Table(rows)


def summary(table: Table) -> str:
    """Return how many claims, checks and regression limits of a ``claims_table`` hold, of those that are judged."""
    counts = {kind: _held_count(table, kind) for kind in KINDS}
    return ", ".join(f"{count} {kind}s hold" for kind, count in counts.items() if count != NONE)


def has_failed(table: Table) -> bool:
    """Return whether Lemma 1 or a regression limit of a ``claims_table`` is broken."""
    return bool(((table["holds"] == "false") & ((table["kind"] == REGRESSION) | (table["claim"] == LEMMA))).any())


def agreement(table: Table) -> Table:
    """Return one row per experiment and sentence of the paper: whether it agrees, and how many claims hold."""
    rows = []
    for (name, quote), claims in table[table["quote"] != ""].groupby(["experiment", "quote"], sort=False):
        entry, held = EXPERIMENTS[str(name)], claims["holds"] == "true"
        verdict, count = "agrees" if held.all() else "differs", f"{held.sum()} of {len(held)}"
        row = {"experiment": entry.title, "figures": entry.figures, "the paper says": quote}
        rows.append(row | {"verdict": verdict, "claims that hold": count})
    return Table(rows)


def describe_agreement(table: Table) -> str:
    """Return the ``agreement`` of a ``claims_table`` as text, and below it each claim that differs."""
    rows = agreement(table).map(str).to_dict("records")
    differs = table[(table["quote"] != "") & (table["holds"] == "false")]
    return "\n".join([format_table(rows, names=3), "", "What differs:", describe_claims(differs)])


def describe_claims(table: Table) -> str:
    """Return a line per row of a ``claims_table``: whether it holds, measured, expected, and who breaks it."""
    verdicts, lines = {"true": "holds", "false": "fails"}, []
    for x in table.assign(broken_by=table.get("broken_by", "")).itertuples():
        sentence = f"{x.experiment}: {x.kind} {verdicts.get(x.holds, x.holds)}: {x.claim}"
        impostors = f"; broken by {x.broken_by}" * bool(x.broken_by)
        lines.append(f"{sentence}: {x.measured:.4g}, expected {x.expected}{impostors}")
    return "\n".join(lines)


def page(
    folder: Path,
    table: Table,
    derived: Mapping[str, Mapping[str, Table]],
    broken: Mapping[str, Table],
    manifest: Mapping[str, Any],
) -> str:
    """Return the page.

    ``folder`` contains the figures, ``table`` is the ``claims_table``, ``derived`` has further tables of each
    experiment, and ``broken`` is empty without impostors.
    """
    kinds = {kind: _held_count(table, kind) for kind in KINDS}
    records = "".join(f"<li>{_source_text(record)}</li>" for record in manifest["records"])
    counts = Table(
        [
            {"experiment": EXPERIMENTS[name].title}
            | {f"{kind}s that hold": _held_count(table[table["experiment"] == name], kind) for kind in KINDS}
            | {"time": f"{manifest['seconds'][name]:.1f} s"}
            for name in derived
        ]
    )
    sections = "".join(
        f'<h2 id="{name}">{html.escape(EXPERIMENTS[name].title)}</h2>'
        f"<p>{html.escape(find_experiment(name).description)}</p>"
        + "".join(map(_html_figure, sorted((folder / name).glob("*.png"))))
        + _html_table(table[table["experiment"] == name].drop(columns="experiment"))
        + "".join(
            f"<details><summary>{title}</summary>{_html_table(content)}</details>"
            for title, content in further.items()
        )
        for name, further in derived.items()
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Online conformal abstention: the experiments</title>
<style>{STYLE}</style></head><body>
<h1>Online conformal abstention: the experiments</h1>
<p>Every simulation figure of the ExAUL paper, reproduced, with its claims compared with measured numbers:
{kinds[CLAIM]} claims hold. A claim can fail: an impostor, another learner in the place of
<code>exaul</code>, breaks it. A claim that no impostor can break (a theorem that is true for any decisions, a fact
of the records, the behaviour of another learner) is a check: {kinds[CHECK]} hold. A regression limit is a number
that was chosen after a run with the default records, so it is no claim: {kinds[REGRESSION]} hold. The paper's own
records are not public; these were used:</p>
<ul>{records}</ul>
{_html_table(counts)}
<p class="small">{NONE}: this run judges no such claim. Time: a program is compiled, and a sweep that experiments
share is run, in the time of the first that needs it.</p>
<h2>What agrees with the paper</h2>{_html_table(agreement(table))}
{_impostors(broken, table)}
{sections}
<h2>Configuration</h2><pre>{html.escape(json.dumps(manifest, indent=2))}</pre>
</body></html>
"""


def _html_table(table: Table) -> str:
    return str(table.to_html(index=False, float_format="{:.4g}".format, na_rep="", border=0))


def _source_text(record: Mapping[str, Any]) -> str:
    name = record["name"]
    origin = f"built-in profile, {PROFILES[name].description}" if name in PROFILES else "a log"
    text = f"{name}: {origin}; {record['records']:,} records, error rate {record['error_rate']:.3f}"
    return html.escape(text + (f", {record['dropped']} rows left out" if record["dropped"] else ""))


def _html_figure(path: Path) -> str:
    data = path.read_bytes()
    width = int.from_bytes(data[16:20]) * 96 // DPI  # width in the PNG header; CSS: 96 pixels per inch
    caption = f"{path.parent.name}/{path.stem}"
    image = f'<img alt="{caption}" width="{width}" src="data:image/png;base64,{base64.b64encode(data).decode()}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _held_count(table: Table, kind: str) -> str:
    verdicts = list(table.loc[table["kind"] == kind, "holds"])
    judged = verdicts.count("true") + verdicts.count("false")
    return f"{verdicts.count('true')} of {judged}" if judged else NONE


def _impostors(broken: Mapping[str, Table], table: Table) -> str:
    """Return a table with the number of claims and limits that hold for exaul and that each impostor breaks."""
    if not broken:
        return ""
    rows = []
    for name, verdicts in broken.items():
        judged = (table.loc[table["experiment"] == name, "kind"] != CHECK).to_numpy()
        held = verdicts[judged & verdicts["holds"].to_numpy(bool)]
        counts = {impostor: int(held[impostor].sum()) for impostor in list(held)[2:]}
        rows.append({"experiment": EXPERIMENTS[name].title, "hold": len(held)} | counts)
    return (
        "<h2>Impostors</h2><p>Each runs in the place of <code>exaul</code>, in at most ten trials. Number of "
        "claims and regression limits that hold for exaul, and how many of them each impostor breaks:</p>"
        f"{_html_table(Table(rows))}"
    )
