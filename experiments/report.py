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


def claims_table(claims: Mapping[str, Sequence[Claim]]) -> Table:
    """One row per claim, by experiment: ``experiment, claim, holds, measured, expected``."""
    rows = [(name, claim) for name, each in claims.items() for claim in each]
    return frame(
        {
            "experiment": [name for name, _ in rows],
            "claim": [claim.claim for _, claim in rows],
            "holds": ["true" if claim.holds else "false" for _, claim in rows],
            "measured": [float(claim.measured) for _, claim in rows],
            "expected": [claim.expected for _, claim in rows],
        }
    )


def page(
    folder: Path,
    experiments: dict[str, Experiment],
    claims: Mapping[str, Sequence[Claim]],
    derived: dict[str, dict[str, Table]],
    about: dict[str, Any],
) -> str:
    """The page of some experiments, by name.

    Args:
        folder: with a folder of figures for each experiment.
        experiments: that were run.
        claims: of each experiment.
        derived: further tables of each experiment.
        about: the manifest: configuration, records, seconds of each experiment.
    """
    holding = sum(claim.holds for each in claims.values() for claim in each)
    total = sum(len(each) for each in claims.values())
    records = "".join(f"<li>{_source(one)}</li>" for one in about["records"])
    rows = "".join(
        f'<tr><td><a href="#{name}">{html.escape(EXPERIMENTS[name].title)}</a></td>'
        f"<td>{sum(c.holds for c in claims[name])} of {len(claims[name])}</td>"
        f'<td class="number">{about["seconds"][name]:.1f} s</td></tr>'
        for name in experiments
    )
    scale = " A quick run, at a tenth of the rounds and trials." if about["configuration"]["quick"] else ""
    sections = "".join(
        _section(folder, name, one, claims[name], derived[name], about["seconds"][name])
        for name, one in experiments.items()
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Online conformal abstention: the experiments</title>
<style>{STYLE}</style></head><body>
<h1>Online conformal abstention: the experiments</h1>
<p>Every simulation figure of the ExAUL paper, drawn anew, with what it claims checked by number: {holding} of
{total} claims hold.{scale} The paper's own records are not public; these were played:</p>
<ul>{records}</ul>
<table><tr><th>experiment</th><th>claims that hold</th><th>time</th></tr>{rows}</table>
{sections}
<h2>Configuration</h2><pre>{html.escape(json.dumps(about, indent=2))}</pre>
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
    seconds: float,
) -> str:
    images = "".join(_image(path) for path in sorted((folder / name).glob("*.png")))
    rows = "".join(_row(claim) for claim in claims)
    sums = "".join(
        f'<details><summary>{title}</summary><div class="wide">'
        f"{table.to_html(index=False, border=0, float_format=lambda x: f'{x:.4g}', na_rep='')}</div></details>"
        for title, table in derived.items()
    )
    return (
        f'<h2 id="{name}">{html.escape(EXPERIMENTS[name].title)}</h2><p>{html.escape(experiment.about)}</p>{images}'
        f"<table><tr><th>claim</th><th>measured</th><th>expected</th><th>holds</th></tr>{rows}</table>{sums}"
        f'<p class="small">{name}: {seconds:.1f} s</p>'
    )


def _image(path: Path) -> str:
    data = path.read_bytes()
    width = int.from_bytes(data[16:20]) * 96 // DPI  # of a PNG in its header; CSS has 96 pixels to the inch
    caption = f"{path.parent.name}/{path.stem}"
    image = f'<img alt="{caption}" width="{width}" src="data:image/png;base64,{base64.b64encode(data).decode()}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _row(claim: Claim) -> str:
    reason = claim.why or "no cause is known: on these records it is as measured"
    why = "" if claim.holds else f'<div class="why">{html.escape(reason)}</div>'
    verdict = "yes" if claim.holds else '<span class="no">no</span>'
    return (
        f"<tr><td>{html.escape(claim.claim)}{why}</td>"
        f'<td class="number">{_number(claim.measured)}</td>'
        f'<td class="number">{html.escape(claim.expected)}</td><td>{verdict}</td></tr>'
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) and abs(value) >= 10_000 else f"{value:.4g}"
