"""The report: one self-contained page of figures and claims, and the claims as a table."""

import base64
import html
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exaul.engine.logs.files import Table, frame
from exaul.engine.logs.profiles import PROFILES
from exaul.engine.results.figures import DPI
from experiments.experiment import CHECK, CLAIM, LEMMA, REGRESSION, Claim, Experiment
from experiments.paper import has_default_records
from experiments.registry import EXPERIMENTS

KINDS = CLAIM, CHECK, REGRESSION
NONE = "none"  # where nothing is judged
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1100px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; } h2 { font-size: 1.25em; margin-top: 2.2em; border-top: 1px solid #ccc; padding-top: .8em; }
table { border-collapse: collapse; margin: .8em 0; font-size: .9em; }
th, td { text-align: left; padding: .25em .8em .25em 0; border-bottom: 1px solid #e4e4e4; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.no { font-weight: bold; } .why { color: #555; font-size: .93em; }
figure { display: inline-block; margin: 1em 1em 0 0; max-width: 100%; } img { max-width: 100%; height: auto; }
figcaption, .small { color: #555; font-size: .85em; }
.wide { overflow-x: auto; } pre { font-size: .8em; overflow-x: auto; background: #f6f6f6; padding: 1em; }
"""


def claims_table(
    claims: Mapping[str, Sequence[Claim]], broken: Mapping[str, Table], configuration: Mapping[str, Any]
) -> Table:
    """Return one row per claim, check and regression limit.

    Its columns are ``experiment, kind, claim, holds, measured, expected, quote``, and with impostors ``broken_by``.
    ``holds`` is a ``verdict``.
    """
    rows = [(name, place, claim) for name, each in claims.items() for place, claim in enumerate(each)]
    columns = {
        "experiment": [name for name, _, _ in rows],
        "kind": [claim.kind for _, _, claim in rows],
        "claim": [claim.claim for _, _, claim in rows],
        "holds": [verdict(claim, configuration) for _, _, claim in rows],
        "measured": [float(claim.measured) for _, _, claim in rows],
        "expected": [claim.expected for _, _, claim in rows],
        "quote": [claim.quote for _, _, claim in rows],
    }
    if broken:
        columns["broken_by"] = ["; ".join(_breakers(broken[name], place)) for name, place, _ in rows]
    return frame(columns)


def verdict(claim: Claim, configuration: Mapping[str, Any]) -> str:
    """Return whether a claim holds: ``true`` or ``false``.

    Or ``default records``, which are needed to tell: a regression limit says nothing about others.
    """
    if claim.kind == REGRESSION and not has_default_records(configuration):
        return "default records"
    return "true" if claim.holds else "false"


def summary(table: Table) -> str:
    """Return how many claims, checks and regression limits of a ``claims_table`` hold, of those that are judged."""
    counts = {kind: _count(table, kind) for kind in KINDS}
    return ", ".join(f"{count} {kind}s hold" for kind, count in counts.items() if count != NONE)


def has_failed(table: Table) -> bool:
    """Return whether Lemma 1 or a regression limit of a ``claims_table`` is broken."""
    return bool(((table["holds"] == "false") & ((table["kind"] == REGRESSION) | (table["claim"] == LEMMA))).any())


def _breakers(broken: Table, place: int) -> list[str]:
    """Return the impostors that break a claim that holds for ``exaul``."""
    row = broken.iloc[place]
    return [name for name in list(broken)[2:] if row["holds"] and row[name]]


def page(
    folder: Path,
    experiments: dict[str, Experiment],
    claims: Mapping[str, Sequence[Claim]],
    table: Table,
    derived: dict[str, dict[str, Table]],
    broken: dict[str, Table],
    manifest: dict[str, Any],
) -> str:
    """Return the page.

    ``folder`` contains the figures, ``table`` is the ``claims_table``, ``broken`` is empty without impostors.
    """
    counts = {kind: _count(table, kind) for kind in KINDS}
    records = "".join(f"<li>{_source(one)}</li>" for one in manifest["records"])
    heads = "".join(f"<th>{kind}s that hold</th>" for kind in KINDS)
    rows = "".join(
        f'<tr><td><a href="#{name}">{html.escape(EXPERIMENTS[name].title)}</a></td>'
        + "".join(f"<td>{_count(table[table['experiment'] == name], kind)}</td>" for kind in KINDS)
        + f'<td class="number">{manifest["seconds"][name]:.1f} s</td></tr>'
        for name in experiments
    )
    sections = "".join(
        _section(folder, name, one, claims[name], derived[name], broken.get(name), manifest)
        for name, one in experiments.items()
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Online conformal abstention: the experiments</title>
<style>{STYLE}</style></head><body>
<h1>Online conformal abstention: the experiments</h1>
<p>Every simulation figure of the ExAUL paper, reproduced, with its claims compared with measured numbers:
{counts[CLAIM]} claims hold. A claim can fail: an impostor, another learner in the place of
<code>exaul</code>, breaks it. A claim that no impostor can break (a theorem that is true for any decisions, a fact
of the records, the behaviour of another learner) is a check: {counts[CHECK]} hold. A regression limit is a number
that was chosen after a run with the default records, so it is no claim: {counts[REGRESSION]} hold. The paper's own
records are not public; these were used:</p>
<ul>{records}</ul>
<table><tr><th>experiment</th>{heads}<th>time</th></tr>{rows}</table>
<p class="small">{NONE}: this run judges no such claim. Time: a program is compiled, and a sweep that experiments
share is run, in the time of the first that needs it.</p>
{_impostors(broken, claims)}
{sections}
<h2>Configuration</h2><pre>{html.escape(json.dumps(manifest, indent=2))}</pre>
</body></html>
"""


def _source(record: dict[str, Any]) -> str:
    name = record["name"]
    what = f"built-in profile, {PROFILES[name].description}" if name in PROFILES else "a log"
    text = f"{name}: {what}; {record['records']:,} records, error rate {record['error_rate']:.3f}"
    return html.escape(text + (f", {record['dropped']} rows left out" if record["dropped"] else ""))


def _section(
    folder: Path,
    name: str,
    experiment: Experiment,
    claims: Sequence[Claim],
    derived: dict[str, Table],
    broken: Table | None,
    manifest: dict[str, Any],
) -> str:
    configuration = manifest["configuration"]
    images = "".join(_image(path) for path in sorted((folder / name).glob("*.png")))
    judged = ""
    for kind in KINDS:
        rows = "".join(
            _row(claim, configuration, None if broken is None else _breakers(broken, place))
            for place, claim in enumerate(claims)
            if claim.kind == kind
        )
        more = "" if broken is None else "<th>broken by</th>"
        head = f"<tr><th>{kind}</th><th>measured</th><th>expected</th><th>holds</th>{more}</tr>"
        judged += f"<table>{head}{rows}</table>" if rows else ""
    sums = "".join(
        f'<details><summary>{title}</summary><div class="wide">'
        f"{table.to_html(index=False, border=0, float_format=lambda x: f'{x:.4g}', na_rep='')}</div></details>"
        for title, table in derived.items()
    )
    return (
        f'<h2 id="{name}">{html.escape(EXPERIMENTS[name].title)}</h2>'
        f"<p>{html.escape(experiment.description)}</p>{images}"
        f'{judged}{sums}<p class="small">{name}: {manifest["seconds"][name]:.1f} s</p>'
    )


def _image(path: Path) -> str:
    data = path.read_bytes()
    width = int.from_bytes(data[16:20]) * 96 // DPI  # width in the PNG header; CSS: 96 pixels per inch
    caption = f"{path.parent.name}/{path.stem}"
    image = f'<img alt="{caption}" width="{width}" src="data:image/png;base64,{base64.b64encode(data).decode()}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _count(table: Table, kind: str) -> str:
    verdicts = list(table.loc[table["kind"] == kind, "holds"])
    judged = verdicts.count("true") + verdicts.count("false")
    return f"{verdicts.count('true')} of {judged}" if judged else NONE


def _impostors(broken: Mapping[str, Table], claims: Mapping[str, Sequence[Claim]]) -> str:
    """Return a table with the number of claims and limits that hold for exaul and that each impostor breaks."""
    if not broken:
        return ""
    names = list(dict.fromkeys(name for table in broken.values() for name in list(table)[2:]))
    rows = ""
    for experiment, table in broken.items():
        held = table[[claim.kind != CHECK for claim in claims[experiment]] & table["holds"].to_numpy(bool)]
        fell = "".join(f'<td class="number">{int(held[name].sum()) if name in held else ""}</td>' for name in names)
        title = html.escape(EXPERIMENTS[experiment].title)
        rows += f'<tr><td>{title}</td><td class="number">{len(held)}</td>{fell}</tr>'
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    return (
        "<h2>Impostors</h2><p>Each runs in the place of <code>exaul</code>, in at most ten trials. Number of "
        "claims and regression limits that hold for exaul, and how many of them each impostor breaks:</p>"
        f"<table><tr><th>experiment</th><th>hold</th>{head}</tr>{rows}</table>"
    )


def _row(claim: Claim, configuration: Mapping[str, Any], breakers: Sequence[str] | None) -> str:
    reason = claim.why or "no known cause; this is the value on these records"
    holds = verdict(claim, configuration)
    why = f'<div class="why">{html.escape(reason)}</div>' if holds == "false" else ""
    quote = f'<div class="why">Paper: "{html.escape(claim.quote)}"</div>' if claim.quote else ""
    shown = {"true": "yes", "false": '<span class="no">no</span>'}.get(holds, f"needs the {holds}")
    more = "" if breakers is None else f"<td>{html.escape(', '.join(breakers))}</td>"
    return (
        f"<tr><td>{html.escape(claim.claim)}{quote}{why}</td>"
        f'<td class="number">{_number(claim.measured)}</td>'
        f'<td class="number">{html.escape(claim.expected)}</td><td>{shown}</td>{more}</tr>'
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) and abs(value) >= 10_000 else f"{value:.4g}"
