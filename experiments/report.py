"""The report: one self-contained page of figures and claims, and the claims as a table."""

import base64
import html
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exaul.engine.data.profiles import PROFILES
from exaul.engine.data.tables import Table, frame
from exaul.engine.results.figures import DPI
from experiments.experiment import Claim, Experiment
from experiments.registry import EXPERIMENTS

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


def claims_table(claims: Mapping[str, Sequence[Claim]], broken: Mapping[str, Table], quick: bool) -> Table:
    """Return one row per claim and check: ``experiment, kind, claim, holds, measured, expected``.

    ``holds`` is a ``verdict``. With impostors there is also ``broken_by``.
    """
    rows = [(name, place, claim) for name, each in claims.items() for place, claim in enumerate(each)]
    columns = {
        "experiment": [name for name, _, _ in rows],
        "kind": ["check" if claim.check else "claim" for _, _, claim in rows],
        "claim": [claim.claim for _, _, claim in rows],
        "holds": [verdict(claim, quick) for _, _, claim in rows],
        "measured": [float(claim.measured) for _, _, claim in rows],
        "expected": [claim.expected for _, _, claim in rows],
    }
    if broken:
        columns["broken_by"] = ["; ".join(_breakers(broken[name], place)) for name, place, _ in rows]
    return frame(columns)


def verdict(claim: Claim, quick: bool) -> str:
    """Return whether a claim holds: ``true``, ``false``, or ``full scale`` if a quick run cannot tell."""
    return "full scale" if quick and claim.full else "true" if claim.holds else "false"


def _breakers(broken: Table, place: int) -> list[str]:
    """Return the impostors that break a claim that holds for ``exaul``."""
    row = broken.iloc[place]
    return [name for name in list(broken)[2:] if row["holds"] and row[name]]


def page(
    folder: Path,
    experiments: dict[str, Experiment],
    claims: Mapping[str, Sequence[Claim]],
    derived: dict[str, dict[str, Table]],
    broken: dict[str, Table],
    manifest: dict[str, Any],
) -> str:
    """Return the page. ``folder`` contains the figures, ``broken`` is empty without impostors."""
    quick = manifest["configuration"]["quick"]
    every = [claim for each in claims.values() for claim in each]
    counts = [_count([claim for claim in every if claim.check == check], quick) for check in (False, True)]
    records = "".join(f"<li>{_source(one)}</li>" for one in manifest["records"])
    rows = "".join(
        f'<tr><td><a href="#{name}">{html.escape(EXPERIMENTS[name].title)}</a></td>'
        f"<td>{_count([c for c in claims[name] if not c.check], quick)}</td>"
        f"<td>{_count([c for c in claims[name] if c.check], quick)}</td>"
        f'<td class="number">{manifest["seconds"][name]:.1f} s</td></tr>'
        for name in experiments
    )
    scale = " A quick run, at a tenth of the rounds and trials: many claims need the full scale." if quick else ""
    sections = "".join(
        _section(folder, name, one, claims[name], derived[name], broken.get(name), manifest)
        for name, one in experiments.items()
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Online conformal abstention: the experiments</title>
<style>{STYLE}</style></head><body>
<h1>Online conformal abstention: the experiments</h1>
<p>Every simulation figure of the ExAUL paper, reproduced, with its claims compared with measured numbers:
{counts[0]} claims hold.{scale} A claim can fail: an impostor, another learner in the place of <code>exaul</code>,
breaks it. A claim that no impostor can break (a theorem that is true for any decisions, a fact of the records, the
behaviour of another learner) is a check: {counts[1]} hold. The paper's own records are not public; these were
used:</p>
<ul>{records}</ul>
<table><tr><th>experiment</th><th>claims that hold</th><th>checks that hold</th><th>time</th></tr>{rows}</table>
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
    quick = manifest["configuration"]["quick"]
    images = "".join(_image(path) for path in sorted((folder / name).glob("*.png")))
    judged = ""
    for check, title in ((False, "claim"), (True, "check")):
        rows = "".join(
            _row(claim, quick, None if broken is None or check else _breakers(broken, place))
            for place, claim in enumerate(claims)
            if claim.check == check
        )
        more = "" if broken is None or check else "<th>broken by</th>"
        head = f"<tr><th>{title}</th><th>measured</th><th>expected</th><th>holds</th>{more}</tr>"
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


def _count(claims: Sequence[Claim], quick: bool) -> str:
    judged = [claim.holds for claim in claims if not (quick and claim.full)]
    return f"{sum(judged)} of {len(judged)}"


def _impostors(broken: Mapping[str, Table], claims: Mapping[str, Sequence[Claim]]) -> str:
    """Return a table with the number of claims that hold for exaul and that each impostor breaks."""
    if not broken:
        return ""
    names = list(next(iter(broken.values())))[2:]
    rows = ""
    for experiment, table in broken.items():
        held = table[[not claim.check for claim in claims[experiment]] & table["holds"].to_numpy(bool)]
        fell = "".join(f'<td class="number">{int(held[name].sum())}</td>' for name in names)
        title = html.escape(EXPERIMENTS[experiment].title)
        rows += f'<tr><td>{title}</td><td class="number">{len(held)}</td>{fell}</tr>'
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    return (
        "<h2>Impostors</h2><p>Each runs in the place of <code>exaul</code>, in at most ten trials. Number of "
        "claims that hold for exaul, and how many of them each impostor breaks:</p>"
        f"<table><tr><th>experiment</th><th>hold</th>{head}</tr>{rows}</table>"
    )


def _row(claim: Claim, quick: bool, breakers: Sequence[str] | None) -> str:
    reason = claim.why or "no known cause; this is the value on these records"
    holds = verdict(claim, quick)
    why = f'<div class="why">{html.escape(reason)}</div>' if holds == "false" else ""
    shown = {"true": "yes", "false": '<span class="no">no</span>', "full scale": "needs the full scale"}[holds]
    more = "" if breakers is None else f"<td>{html.escape(', '.join(breakers))}</td>"
    return (
        f"<tr><td>{html.escape(claim.claim)}{why}</td>"
        f'<td class="number">{_number(claim.measured)}</td>'
        f'<td class="number">{html.escape(claim.expected)}</td><td>{shown}</td>{more}</tr>'
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) and abs(value) >= 10_000 else f"{value:.4g}"
