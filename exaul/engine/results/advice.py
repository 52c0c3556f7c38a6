"""Advise whether to use ``aci-rank`` on questions like those of a log, judged on records that it has not seen.

The log is cut into halves. The learner starts from one half and plays the other: once in the order of the log, and
30 times with random halves. Beside it, the threshold that a user would read off the first half plays the same
records. The learner is advised at alpha if a threshold can answer a share FEASIBLE of the log, and the upper limit
of its FDR is near alpha (``is_near``): the 95% quantile over random halves or, if that is larger, the FDR in the
order of the log. Nothing depends on the trials of a sweep.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exaul.engine.logs.diagnosis import find_drift
from exaul.engine.logs.files import Table
from exaul.engine.logs.log import Records
from exaul.engine.registry import FROM_LOG, backend_of
from exaul.engine.results.text_table import COMMAND, format_table
from exaul.engine.simulation.chunks import Chunk, NativeSimulation
from exaul.engine.sweep import Sweep
from exaul.kernels.game import BLOCK, LOG_ARMS, Copies, Rates, Start, Sums, compute_cuts, log_grid
from exaul.kernels.learners.aci_rank import STEP, aci_rank, risk_bound
from exaul.kernels.learners.learner import start_copies, start_of
from exaul.kernels.metrics import FEASIBLE, Floats, answerable, lowest_threshold
from exaul.kernels.native import RecordBlocks

ACI_RANK, THRESHOLD = "aci-rank", "threshold of the log"
FDR_TOLERANCE = 0.01  # an FDR of alpha + FDR_TOLERANCE counts as held; below alpha = 0.02, one of 1.5 alpha
HALVES = 30  # random halves
FEW_RECORDS = 1000  # records: on fewer, the halves say little
LOW, HIGH = 0.05, 0.95  # quantiles of the spread over random halves
SEED = 0  # of the random halves: the advice of a log is the same whatever the sweep draws


def largest_near(alpha: Any) -> Any:
    """Return the largest FDR that counts as held at alpha: the smaller of alpha + 0.01 and 1.5 alpha.

    ``fdr_within_01`` of ``traces.csv`` has the first limit alone, as its name says.
    """
    return alpha + np.minimum(FDR_TOLERANCE, np.asarray(alpha) / 2)


def is_near(fdr: Any, alpha: Any) -> Any:
    """Return whether an FDR counts as held at alpha."""
    return fdr <= largest_near(alpha)


def start_from(log: Records, alphas: Floats) -> tuple[Start, Floats]:
    """Return the ``Start`` of ``aci-rank`` at each alpha, and its grid [H], both from a log."""
    grid = log_grid(LOG_ARMS, log.scores)
    return start_of(aci_rank.rule, len(grid), alphas, (compute_cuts(grid, log.scores), log.errors)), grid


def simulate_half(log: Records, played: Records, alphas: Floats) -> Sums:
    """Start ``aci-rank`` from a log at each alpha, and let it play other records, each rated at once."""
    first, grid = start_from(log, alphas)
    rounds, zeros, costs = len(played.scores), np.zeros(len(alphas), np.int32), np.zeros(len(alphas))
    start = start_copies(aci_rank.rule, len(grid), first, np.arange(len(alphas)), zeros)
    copies = Copies(alphas, costs, costs, zeros, zeros, *np.ones((2, len(alphas))))
    simulation = NativeSimulation(backend_of(aci_rank, "native", "float64"), copies, start, len(grid), 1)
    cuts, errors = compute_cuts(grid, played.scores)[None], played.errors[None]
    records = RecordBlocks(rounds, cuts, errors, np.zeros((1, rounds)))  # the learner draws nothing
    blocks = np.arange(-(-rounds // BLOCK), dtype=np.uint32)
    chunk = Chunk(blocks, np.ones((len(blocks), BLOCK), bool), np.zeros((len(blocks), 0), np.int32))
    simulation.submit(chunk, Rates(np.full(len(blocks), STEP), np.zeros(len(blocks))), records)
    simulation.collect()
    return simulation.sums


def hold_threshold(log: Records, played: Records, alphas: Floats) -> Sums:
    """Answer other records with the lowest threshold whose FDR on a log is at most alpha."""
    shown = [played.scores >= lowest_threshold(log.scores, log.errors, alpha) for alpha in alphas]
    return Sums(np.array([x.sum() for x in shown]), np.array([played.errors[x].sum() for x in shown]))


def halves(records: Records) -> list[tuple[Records, Records]]:
    """Return the halves of a log, as (log, played): in their order, then 30 random pairs.

    In a random pair, the played rows are drawn from its half with replacement: they vary as new questions do.
    """
    in_order, generator = np.arange(len(records.scores)), np.random.default_rng(SEED)
    half = len(in_order) // 2
    pairs = [(in_order[:half], in_order[half:])]
    for _ in range(HALVES):
        order = generator.permutation(in_order)
        pairs.append((order[:half], generator.choice(order[half:], len(order) - half)))
    return [(records.take(log), records.take(played)) for log, played in pairs]


def advice_table(records: Sequence[Records], alphas: Sequence[float]) -> Table:
    """Return the table ``advice`` of ``docs/results.md``: two rows per source and alpha, at the step of programs.

    A log of one record has no halves, and so no rows.
    """
    sources = [source for source in records if len(source.scores) > 1]
    return Table([row for source in sources for row in _rows(source, np.array(alphas))])


def _rows(source: Records, alphas: Floats) -> list[dict[str, Any]]:
    pairs = halves(source)
    rows = _judged(source, pairs, alphas)
    size, off = len(source.scores), "so the advice may be off by several points"
    short = f"the log has only {size} records, {off}" if size < FEW_RECORDS else None
    cautions = [x for x in (short, find_drift(source.scores, source.errors)) if x]
    refused = [row["alpha"] for row in rows if row["learner"] == ACI_RANK and not row["advised"]]
    usable = usable_alpha(source, pairs, max(refused)) if refused else {}
    columns = {"usable_alpha": usable.get("alpha", np.nan), "usable_answered": usable.get("answered", np.nan)}
    return [row | columns | {"caution": "; ".join(cautions) or np.nan} for row in rows]


def usable_alpha(source: Records, pairs: Sequence[tuple[Records, Records]], above: float) -> Mapping[str, Any]:
    """Return the row of an alpha above another at which ``aci-rank`` is advised; empty if none is found.

    Only whole percents below the error rate count, since from that on all may be answered. They are searched by
    bisection: it finds the least one if the advice is monotone in alpha, which chance may prevent on short logs.
    """
    candidates = np.arange(math.floor(100 * above) + 1, math.ceil(100 * source.errors.mean())) / 100
    judged = dict[float, dict[str, Any]]()

    def is_advised(alpha: float) -> int:
        judged[alpha] = _judged(source, pairs, np.array([alpha]))[0]
        return int(judged[alpha]["advised"])

    advised_alphas = candidates[bisect_left(candidates, 1, key=is_advised) :]
    return judged[advised_alphas[0]] if len(advised_alphas) else {}


def _judged(source: Records, pairs: Sequence[tuple[Records, Records]], alphas: Floats) -> list[dict[str, Any]]:
    """Return two rows per alpha, ``aci-rank`` first, without what concerns the source and other alphas."""
    ways = {
        ACI_RANK: [simulate_half(log, played, alphas) for log, played in pairs],
        THRESHOLD: [hold_threshold(log, played, alphas) for log, played in pairs],
    }
    start, _ = start_from(source, alphas)
    bound = risk_bound(STEP, 0, 0, alphas, start.state)
    rows = []
    for i, alpha in enumerate(alphas):
        best = answerable(source.scores, source.errors, alpha)
        for name, results in ways.items():
            count, wrong = (np.array([x[i] for x in sums]) for sums in zip(*results, strict=True))
            with np.errstate(invalid="ignore"):
                spread = _spread("answered", count / len(pairs[0][1].scores)) | _spread("fdr", wrong / count)
            # of n answers, no FDR between 0 and 1 / n can be seen
            fdr_most = np.fmax(spread["fdr_q95"], spread["fdr_in_order"]).clip(1 / len(pairs[0][1].scores))
            fdr_most = np.nan if np.isnan(spread["fdr"]) else fdr_most
            is_advised = name == ACI_RANK and best >= FEASIBLE and bool(is_near(fdr_most, alpha))
            row = {"source": source.name, "alpha": alpha, "learner": name, "records": len(source.scores)}
            row |= {"answerable": best} | spread
            promised = bound[i] if name == ACI_RANK else np.nan
            rows.append(row | {"fdr_most": fdr_most, "risk_bound": promised, "advised": int(is_advised)})
    return rows


def _spread(name: str, values: Floats) -> dict[str, float]:
    """Return mean and quantiles over the random halves, and the value in the order of the log, given first.

    The former are NaN if most halves have no value: the others would not be typical.
    """
    shuffled = values[1:][~np.isnan(values[1:])]
    shuffled = shuffled if len(shuffled) >= HALVES / 2 else np.array([np.nan])
    low, high = np.quantile(shuffled, (LOW, HIGH))
    return {name: shuffled.mean(), f"{name}_q05": low, f"{name}_q95": high, f"{name}_in_order": values[0]}


def advised(table: Table, trials: Table | None = None) -> dict[float, str]:
    """Return by alpha the learner advised for every source, if any is; of ``trials``, the learner to mark there."""
    if table.empty:
        return {}
    name = FROM_LOG if trials is not None and FROM_LOG in set(trials["learner"]) else ACI_RANK
    by_alpha = table[table["learner"] == ACI_RANK].groupby("alpha")["advised"].min()
    return dict.fromkeys(by_alpha.index[by_alpha.astype(bool)].tolist(), name)


def describe(table: Table, learner: str = ACI_RANK, is_perfect: bool = True) -> str:
    """Return the advice as text: a sentence per source and alpha, then cautions; empty without rows.

    Args:
        table: as ``advice_table`` returns it.
        learner: the name of ``aci-rank`` in the sweep.
        is_perfect: whether each answer of the sweep gets its feedback at once.
    """
    lines, several = [], not table.empty and table["source"].nunique() > 1
    for source, rows in table.groupby("source", sort=False) if not table.empty else ():
        where = f"on {source} " * several
        for _, row in rows[rows["learner"] == ACI_RANK].iterrows():  # of each alpha
            lines.append(f"{where}at alpha = {row['alpha']:g}: {_sentence(row, learner)}")
        if not rows["advised"].groupby(rows["alpha"]).max().all():
            lines.append(f"{where}{_remedy(rows.iloc[0], learner)}")
        lines += [f"caution: {where}{text}" for text in rows["caution"].dropna().unique()]
    if lines and not is_perfect:
        lines.append("caution: the advice takes all answers to be rated at once and correctly, unlike here")
    return "\n".join(lines)


def describe_use(sweep: Sweep, alphas: Sequence[float]) -> str:
    """Return how to use ``aci-rank`` after the log of a sweep, in a program and as a service: at some alphas."""
    alpha, log = alphas[0], sweep.logs[0] if len(sweep.logs) == 1 else "LOG"
    chosen = f", with alpha = {' or '.join(f'{x:g}' for x in alphas)}" * (len(alphas) > 1)
    arguments = {"alpha": alpha, "warm_start": log} | sweep.changed
    program = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    is_part, share = sweep.feedback_rate < 1, f"{sweep.feedback_rate:g}"  # of the answers is rated, as by audits
    service = f"as a service{chosen}:\n{COMMAND}{sweep.as_service(alpha, log, *['--audit', share] * is_part)}"
    later = f"{sweep.upstream_hint}. --audit SHARE cannot be {'changed' if is_part else 'added'} later."
    return f"in a program{chosen}:\n{COMMAND}Abstainer({program})\n{service}\n{later}"


def describe_halves(table: Table, width: int | None = None) -> str:
    """Return what was answered of one half after a start from the other, as a table with its title."""
    title = f"the shares to plan with: means over {HALVES} random halves of the log (5% to 95% of the halves)"
    legend = ["each line starts from one half, and plays as many rows drawn from the other, which it has not seen"]
    means, lows, highs = (table[[f"fdr{x}", f"answered{x}"]].to_numpy() for x in ("", "_q05", "_q95"))
    if ((means < lows - 0.0005) | (means > highs + 0.0005)).any():  # by more than the rounding
        legend.append("a mean outside its range is that of a few halves that differ much from the others")
    if ((table["answered_q05"] == 0) & (table["fdr"] >= 0)).any():
        legend.append("an FDR is of the halves in which something is answered")
    keys = {"log": "source", "learner": "learner", "alpha": "alpha"}
    keys = {title: name for title, name in keys.items() if name == "learner" or table[name].nunique() > 1}
    rows = [
        {title: row[name] for title, name in keys.items()}
        | {"FDR": describe_range(row, "fdr"), "answered": describe_range(row, "answered")}
        for _, row in table.iterrows()
    ]
    names = len(keys) - ("alpha" in keys)
    table = format_table(rows, width, names=names, kept=len(keys) + 1)
    return "\n\n".join([title, table, "\n".join(legend)])


def _sentence(row: Any, learner: str) -> str:
    """Return the advice from the row of the learner."""
    if row["answerable"] < FEASIBLE:
        return f"use none. The best threshold answers {row['answerable']:.1%} of the whole log"
    if row["advised"]:
        free = f"no abstention is needed: at most {100 * row['alpha']:g}% of all answers are wrong; to guard "
        reason = f"{free}against a change, " * (row["answerable"] == 1)
        share = describe_range(row, "answered", _decimals(row["answered_q05"], row["answered_q95"]))
        expected = f"{share} of the questions answered, and {describe_range(row, 'fdr')} of the shown answers wrong"
        return f"{reason}use {learner}, started from a log of your model; expect {expected}"
    high, allowed = row["fdr_most"], f"{100 * largest_near(row['alpha']):.4g}"
    texts = [f"{100 * high:.{decimals}f}" for decimals in range(1, 9)]
    shown = next((x for x in texts if float(x) > float(allowed)), texts[-1])  # not rounded to what is allowed
    where = f"at most this on 95% of {HALVES} random halves of the log"
    where = "as on the second half of the log, from its first" if row["fdr_in_order"] >= high else where
    limit = f"may have an FDR of {shown}% ({where}; allowed: {allowed}%)"
    limit = limit if high >= 0 else "answers nothing on most halves of it"
    return f"no advice. {learner}, started from a log, {limit}"


def _remedy(row: Any, learner: str) -> str:
    """Return what to do where a learner is not advised, from a row of the source."""
    where, better = f"where {learner} is not advised: take", "more rows or a better score"
    if row["usable_alpha"] > 0:
        share = row["usable_answered"]
        expected = f"at which it is advised; expect {100 * share:.{_decimals(share, share)}f}% answered"
        return f"{where} {better}, or alpha = {row['usable_alpha']:g} ({expected})"
    return f"{where} {better}; it is not advised at a larger alpha either, unless all may be answered there"


def _decimals(least: float, largest: float) -> int:
    """Return the decimals of shares in percent: one if one share is below 10%, or would be rounded to 100%."""
    return 0 if least >= 0.1 and largest < 0.995 else 1


def describe_range(row: Any, name: str, decimals: int = 1) -> str:
    """Return the mean of ``fdr`` or ``answered`` over random halves, and its spread, in percent; "-" if missing.

    Its spread is left out if all three are rounded to the same.
    """
    if not row[name] >= 0:
        return "-"
    mean, low, high = (f"{100 * row[f'{name}{x}']:.{decimals}f}" for x in ("", "_q05", "_q95"))
    return f"{mean}%" + f" ({low} to {high})" * (not mean == low == high)
