"""``exaul plan``: print the guarantees of each learner and the horizon that a better one needs, or plan audits."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from exaul.commands.flags import Command
from exaul.commands.terminal import show, terminal_width
from exaul.engine import registry
from exaul.engine.checks import BadInput, as_typed, check_alpha, check_count, check_holds, check_positive, setting
from exaul.engine.feedback import RatingFlags, check_audit
from exaul.engine.logs.log import Layout, Records, describe_start
from exaul.engine.results.text_table import COMMAND, format_table, round_up
from exaul.kernels.fdr_limit import fdr_limit
from exaul.kernels.feedback import EXPIRES, Feedback
from exaul.kernels.guarantee import LONGEST_HORIZON, GuaranteeCase, guarantee, shortest
from exaul.kernels.learners.aci_rank import SHARE, aci_rank
from exaul.kernels.learners.learner import Learner, expected_share
from exaul.kernels.metrics import FEASIBLE

WEEKS = 26  # that audits are planned for (chosen)
PRINTED_WEEKS = 1, 2, 4, 8, 26  # weeks in the printed table
DRAWN_SHARES = 0.1, 0.5, 1.0  # shares answered for which the figure has a line of the guarantee (chosen)
NONE, NEVER = "none", "never"  # where nothing is proved, and where no horizon is long enough
AUDIT_LIMIT, ALL_RATED = "audits prove", "if all are rated: "  # names of limits, in the table and the figure
ACI_RANK = "aci-rank"  # which may start from a log
COVERAGE = 0.5  # share of the questions that are answered, unless something else is known (chosen)
AUDITS_USE = {"alpha", "delta", "coverage", "warm_start", "per_day", "audits_per_day", "out"}  # besides columns
MEANINGS = {
    "abstaining": "allowed because the learner's loss counts abstentions, too (1 / lambda); it falls with T",
    "learning": "wrong answers above alpha while the learner learns, as a share of all; it falls with more answers",
}


class DescribedStart(NamedTuple):
    """How ``aci-rank`` starts; both shares are None without a log."""

    share: float | None  # s_1, for its bound: half of the lowest level that is answered counts
    answered: float | None  # of the log's records, at first
    text: str


class Plan(RatingFlags, Layout):
    """The setting of the guarantees. Every field is a flag of ``exaul plan``."""

    alpha: float = setting(0.1, "target FDR in (0, 1)", "ALPHA")
    horizon: int = setting(30_000, "rounds T", "T")
    arms: int = setting(1000, "number H of thresholds of the grid, at least 2", "H")
    delta: float = setting(0.05, "guarantees hold with probability 1 - delta, in (0, 1)", "DELTA")
    coverage: float | None = setting(
        None,
        f"share of rounds that are answered, in (0, 1] (default: {COVERAGE}; with --warm-start, what {ACI_RANK} "
        "answers first)",
        "SHARE",
    )
    warm_start: str | None = setting(None, f"log from which {ACI_RANK} starts, as in '{{exaul}} sweep'", "LOG")
    open: int = setting(0, "largest number of answers that wait for feedback at a time", "N")
    audit: float | None = setting(
        None, "probability of auditing an answer, in (0, 1]; then only audited answers are learned", "P"
    )
    per_day: int | None = setting(None, "questions a day, of a service whose audits to plan", "N")
    audits_per_day: int | None = setting(None, "answers a day that somebody can audit", "N")
    out: str | None = setting(
        None, "with --per-day: folder (absent or empty) for a table and a figure of the limits over weeks", "DIR"
    )
    slack: float | None = setting(None, "find the horizon that guarantees an FDR of at most alpha + SLACK", "SLACK")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_used(self.warm_start)
        check_alpha("alpha", self.alpha)
        check_holds("horizon", self.horizon, 1 <= self.horizon <= LONGEST_HORIZON, "from 1 to 2**62")
        check_count("arms", self.arms, 2)
        check_holds("delta", self.delta, 0 < self.delta < 1, "in (0, 1)")
        check_count("open", self.open, 0)
        check_audit(self.audit, self.bias, self.missing)
        if self.audit is not None and self.feedback_rate != 1:
            raise BadInput(f"feedback_rate: {self.feedback_rate} given; with audits it must be 1")
        check_holds("coverage", self.coverage, self.coverage is None or 0 < self.coverage <= 1, "in (0, 1]")
        if (self.per_day is None) != (self.audits_per_day is None):
            raise BadInput("per_day, audits_per_day: one of the two given; audits are planned with both")
        if self.out is not None and self.per_day is None:
            raise BadInput("out: given without per_day; the figure is of the weeks of a service")
        check_count("per_day", self.per_day)
        check_positive("slack", self.slack)
        unused = [
            f.name
            for f in fields(self)
            if f.name not in {*AUDITS_USE, *self.changed} and getattr(self, f.name) != f.default
        ]
        if unused and self.per_day is not None:
            raise BadInput(f"{', '.join(unused)}: given together with per_day, which plans audits without this")
        answers, audits = (self.per_day or 0) * self.answered, self.audits_per_day
        fits = audits is None or 0 < audits <= answers
        check_holds("audits_per_day", audits, fits, f"from 1 to {answers:g}, the answers of a day")

    @property
    def feedback(self) -> Feedback:
        """The fields as the kernels' ``Feedback``; audits are feedback at their rate."""
        return super().feedback._replace(rate=self.feedback_rate if self.audit is None else self.audit)

    @cached_property
    def inspected(self) -> tuple[Records, str]:
        """The records of the log from which ``aci-rank`` starts, and a text on its defects."""
        from exaul.commands.inspect import Inspect, inspect_log  # imports pandas

        assert self.warm_start is not None
        records, _, cautions = inspect_log(Inspect(log=self.warm_start, alphas=(self.alpha,), **self.changed))
        return records, "\n\n".join(cautions)

    def started(self, alpha: float) -> tuple[float, float]:
        """Return s_1, and the share of the log's records that ``aci-rank`` answers at first, at a target."""
        from exaul.engine.results.advice import start_from  # imports pandas

        first, _ = start_from(self.inspected[0], np.array([alpha]))
        shares = expected_share(aci_rank.rule, first)
        assert shares is not None
        return float(first.state.share[0]), float(shares[0])

    @cached_property
    def described_start(self) -> DescribedStart:
        """How ``aci-rank`` starts, and a text with the share answered and the log's defects."""
        if self.warm_start is None:
            start = f"without a log aims at {SHARE:.0%} at first, but does not know yet which scores are high"
            return DescribedStart(None, None, f"{ACI_RANK} {start}; for a start from a log: --warm-start LOG")
        share, answered = self.started(self.alpha)
        records, cautions = self.inspected
        start = describe_start(records.describe_log(), ACI_RANK, {self.alpha: answered}, names_sweep=True)
        return DescribedStart(share, answered, "\n\n".join(filter(None, [start, cautions])))

    @property
    def start(self) -> float | None:
        """The first share s_1 of ``aci-rank``, for its bound; None without a log."""
        return self.described_start.share

    @cached_property
    def answered(self) -> float:
        """The share of the questions that are answered."""
        return self.answered_at(self.alpha) or COVERAGE

    def answered_at(self, alpha: float) -> float:
        """Return the share of the questions that are answered at a target."""
        if self.coverage is None and self.warm_start is not None:
            return float(f"{self.started(alpha)[1]:.3g}")  # as printed
        return self.coverage or COVERAGE

    def advice_at(self, alphas: Sequence[float]) -> tuple[Container[float], str, float]:
        """Return at which targets a sweep of the log advises ``aci-rank``, its text, and the share of the first.

        Without a log, these are all targets, an empty text and NaN.
        """
        if self.warm_start is None:
            return alphas, "", np.nan
        from exaul.engine.results import advice  # imports pandas

        table = advice.advice_table([self.inspected[0]], alphas)
        return advice.advised(table), advice.describe(table, is_perfect=False), table["answered"].iloc[0]

    @property
    def case(self) -> GuaranteeCase:
        """The case in which the guarantees hold."""
        case = GuaranteeCase(*(getattr(self, name) for name in GuaranteeCase._fields))
        return case._replace(coverage=self.answered)

    def proven(self, alpha: float, answers: float, probability: float) -> float:
        """Return the limit that audits prove after some answers of which a share alpha is wrong."""
        return fdr_limit(alpha * answers * probability, answers, answers, probability, (0.0, 0.0), self.delta)

    def target_for(self, limit: float, per_day: int, audits_per_day: int) -> tuple[float, float, float] | None:
        """Return the largest alpha, in thousandths, at which audits prove a limit in WEEKS; None if there is none.

        With it come the share that is answered at this alpha, and the probability of an audit.
        """
        for thousandths in range(round(1000 * limit), 0, -1):
            alpha = thousandths / 1000
            answered = self.answered_at(alpha)
            if answered < FEASIBLE:
                break
            probability = min(audits_per_day / (per_day * answered), 1.0)
            if self.proven(alpha, 7 * WEEKS * per_day * answered, probability) <= limit:
                return alpha, answered, probability
        return None


def limits_by_week(plan: Plan, per_day: int, probability: float) -> list[dict[str, Any]]:
    """Return limits of the FDR after each week: what audits will have proved, and what ``aci-rank`` guarantees.

    ``probability`` is the probability of an audit. The guarantees are those of several shares answered.
    """
    rows, learner = list[dict[str, Any]](), learners()[ACI_RANK]
    for weeks in range(1, WEEKS + 1):
        answers = 7 * weeks * per_day * plan.answered
        row = {"weeks": weeks, "limit": AUDIT_LIMIT, "answers": answers, "audits": answers * probability}
        rows.append(row | {"fdr": plan.proven(plan.alpha, answers, probability)})
        for share in (plan.answered,) if plan.coverage or plan.start else DRAWN_SHARES:
            case = plan.case._replace(horizon=7 * weeks * per_day, coverage=share)
            name, fdr = f"{ALL_RATED}{_exact(share)} answered", guarantee(learner, case).fdr
            rows.append({"weeks": weeks, "limit": name, "answers": case.answered, "audits": 0, "fdr": fdr})
    return rows


def show_audits(plan: Plan, per_day: int, audits_per_day: int) -> None:
    """Print the probability of an audit, and what audits will have shown after some weeks; write it to ``out``."""
    probability = audits_per_day / (per_day * plan.answered)
    limits = limits_by_week(plan, per_day, probability)
    rows = [
        {name: f"{row[name]:,.0f}" for name in ("weeks", "answers", "audits")}
        | {"FDR at most": _percent(row["fdr"])}
        for row in limits
        if row["limit"] == AUDIT_LIMIT and row["weeks"] in PRINTED_WEEKS
    ]
    if plan.out is not None:
        from exaul.engine import folder  # imports pandas
        from exaul.engine.logs.files import Table

        table = Table(limits)
        start = "without a" if plan.warm_start is None else "from the"
        note = (
            f"Audits prove their limit with {_exact(1 - plan.delta)} confidence: {audits_per_day:,} a day, if "
            f"{_exact(plan.answered)} of {per_day:,} questions a day are answered, {_exact(plan.alpha)} of the "
            f"answers wrong. If all are rated: what {ACI_RANK} guarantees, for certain and without audits, {start} "
            "log, if this share is answered and each answer is rated correctly and at once."
        )
        folder.write_new(plan.out, {"weeks": table}, {"weeks": draw_limits(table, plan.alpha, note)})
    share, lower_command, target = f"{probability:.4g}", "", plan.target_for(plan.alpha, per_day, audits_per_day)
    advised, advice, expected_share = plan.advice_at([plan.alpha, *(target or ())[:1]])
    if target:
        lower, answered, lower_share = target
        lower_command = f"for a limit of {_exact(plan.alpha)} in {WEEKS} weeks, "
        if lower in advised:
            command = plan.as_service(lower, plan.warm_start, "--audit", f"{lower_share:.4g}")
            lower_command += f"if {_exact(answered)} of the questions are answered:\n{COMMAND}{command}"
        else:  # a smaller one is not advised either: so on 26 real logs, at all of 142 whole percents
            lower_command += (
                f"alpha must be {lower}, which is not advised; with more audits a day, it may be larger"
            )
    expected = f"{'the advice' if advice else 'a sweep'} says what to expect"
    if advice and plan.alpha in advised:
        needed = min(1.0, audits_per_day / (per_day * expected_share))
        advice += f"\nif so many are answered at alpha = {plan.alpha}, --audit {needed:.4g} gives as many audits"
    if advice:
        week = "--alphas", str(plan.alpha), "--horizon", str(7 * per_day), "--feedback-rate", share
        rated = str(plan.warm_start), *plan.as_flags(), "--warm-start", "0.5", "--learners", ACI_RANK
        advice += f"\nto simulate a week with these audits:\n{COMMAND}{as_typed('sweep', '--logs', *rated, *week)}"
    command = f"{COMMAND}{plan.as_service(plan.alpha, plan.warm_start, '--audit', share)}"
    unadvised = "" if plan.alpha in advised else f"; alpha = {plan.alpha} is not advised"
    show(
        f"at alpha = {plan.alpha}: audit each answer with probability {share} (--audit {share}).",
        format_table(rows, terminal_width(), kept=4),
        _explain_none(rows),
        f"With {_exact(1 - plan.delta)} confidence, the FDR of all answers up to the end of a week is at most this "
        f"if {_exact(plan.answered)} of the questions are answered (--coverage; {expected}), "
        f"{_exact(plan.alpha)} of the answers are wrong, and each audit has a result (one without is a wrong one).",
        "" if plan.start is None else plan.described_start.text,
        f"the advice of a sweep of this log:\n{advice}" if advice else "",
        "" if plan.out is None else f"figure and table: {plan.out}",
        f"as a service ({plan.upstream_hint}{unadvised}):\n{command}",
        lower_command,
    )


def draw_limits(table: Any, alpha: float, note: str) -> Any:
    """Draw ``fdr`` over ``weeks``, a line for each ``limit`` (a name), which is at its end with its last value."""
    from exaul.engine.results import figures  # imports matplotlib

    figure, panels = figures.panel_grid(table, "FDR at most")
    axes, rows = panels[0]
    several = rows["limit"].nunique() > 2
    proved = rows["fdr"].where(rows["fdr"] < 1)
    top = max(proved.max(), 1.01 * alpha)  # NaN is not larger
    ends = [(alpha, f"target: {_exact(alpha)}", "black")]
    for style, name, line in figures.styled_lines(rows.assign(fdr=proved), "limit"):
        short = name.removeprefix(ALL_RATED) if several else name.partition(":")[0]  # the caption has the share
        axes.plot(
            line["weeks"], line["fdr"], markevery=[week - 1 for week in PRINTED_WEEKS], clip_on=False, **style
        )
        if none := line["fdr"].isna().sum():
            note += f" No limit below 100% until week {none}: {short}."
        if none < WEEKS:
            ends.append((line["fdr"].iloc[-1], f"{short}: {_percent(line['fdr'].iloc[-1])}", style["color"]))
    axes.axhline(alpha, zorder=0, **figures.TARGET_STYLE)
    margin = 0.05 * (top - alpha)
    axes.set(xlabel="weeks", xlim=(0, WEEKS), ylim=(alpha - margin, top + margin))
    figures.in_percent(axes.yaxis)
    figures.end_labels(axes, ends)
    figures.add_legend(figure, [], note)
    return figure


def learners() -> dict[str, Learner[Any]]:
    """Return the learners that learn and have a guarantee, by name."""
    loaded = {name: registry.load_object(x) for name, x in registry.LEARNERS.items() if name != registry.FROM_LOG}
    return {
        name: learner
        for name, learner in loaded.items()
        if learner.feedback != "none" and (learner.risk_bound or (learner.rates and learner.regret_bounds))
    }


def conditions(case: GuaranteeCase) -> Iterator[str]:
    """Yield what the guarantees require, one sentence for each requirement (``docs/proofs.md``, section 5)."""
    feedback = case.feedback
    yield f"at least {_exact(case.coverage)} of the rounds are answered"
    yield "rates are the default ones" + (", and lambda is sqrt(T)" if case.is_perfect else "")
    if case.audit is not None:
        yield f"each answer is audited with probability {case.audit}, and each audit has a result"
    elif not case.is_certain:
        right, wrong, *_ = feedback.parameters()
        yield f"right answers are rated with probability {right}, wrong ones with {wrong}, whatever happened before"
    elif not feedback.may_be_missing:
        yield "each answer is rated"
    if not any(feedback.flips):
        yield "feedback is correct"
    elif case.is_certain:
        yield "no wrong answer is rated as right"
    else:
        down, up = feedback.flips
        yield f"rated right answers get a thumb down with probability {down}, wrong ones a thumb up with {up}"
    if feedback.is_biased and not case.is_certain:
        yield "each answer is right or wrong, and no rating is between"
    if case.imputes:
        yield f"answers without feedback count as {feedback.missing} after {EXPIRES:,} questions (expires)"
    elif not case.open:
        yield "feedback comes before the next question"
    else:
        if not feedback.reserve:
            yield f"at most {case.open:,} answers at a time wait for feedback"
        if feedback.missing != "wrong":
            yield f"no feedback comes more than {EXPIRES:,} questions late (expires)"
    yield "no answer is withdrawn" + (" after its feedback" if case.is_certain else "")


def main(arguments: Mapping[str, Any]) -> int:
    """Print the guarantee of each learner and, with ``slack``, the horizon that it needs; or plan audits."""
    plan = Plan(**arguments)
    if plan.slack is not None and plan.alpha + plan.slack >= 1:
        raise BadInput(f"slack: {plan.slack} found; alpha + slack must be below 1")
    answered = plan.described_start.answered
    if plan.warm_start is not None and plan.coverage is None and answered is not None and answered < FEASIBLE:
        reason = f"{answered:.1%} of {plan.warm_start} would be answered at it, less than {FEASIBLE:.0%}"
        flags = "--logs", plan.warm_start, *plan.as_flags(), "--alphas", f"{plan.alpha:g}", "--warm-start", "0.5"
        raise BadInput(f"alpha: {plan.alpha:g} found; {reason}; {as_typed('sweep', *flags)} names a larger one")
    if plan.per_day is not None and plan.audits_per_day is not None:
        show_audits(plan, plan.per_day, plan.audits_per_day)
        return 0
    shown = {name: x for name, x in learners().items() if plan.case.is_perfect or x.risk_bound}
    left_out = ", ".join(name for name in learners() if name not in shown)
    # numbers of the user are printed as given, because a rounded condition may be a weaker one
    rows, head = [_row(plan, *item) for item in shown.items()], f"After {plan.horizon:,} questions, each guarantee"
    show(
        f"at alpha = {plan.alpha}, T = {plan.horizon:,}, H = {plan.arms:,}, {_exact(plan.answered)} answered: "
        "FDR at most = alpha + abstaining + learning",
        format_table(rows, terminal_width(), MEANINGS, names=2, kept=3),
        _explain_none(rows),
        _explain_never(plan, rows),
        plan.described_start.text,
        f"Nothing is proved for {left_out} under imperfect feedback (docs/promises.md)." if left_out else "",
        "\n".join([f"{head} holds if", *(f"- {x}" for x in conditions(plan.case))]),
        "A guarantee covers the worst sequence; the FDR in practice is far smaller.",
    )
    return 0


def _row(plan: Plan, name: str, learner: Learner[Any]) -> dict[str, str]:
    """Return the guarantee of a learner as a row of the table."""
    bound, is_certain = guarantee(learner, plan.case), plan.case.is_certain and learner.risk_bound is not None
    row = {
        "learner": name,
        "holds": "on every sequence" if is_certain else f"with probability {_exact(1 - plan.delta)}",
        "FDR at most": _percent(bound.fdr),
    }
    if plan.slack is not None:
        horizon = shortest(learner, plan.case, plan.slack)
        row[f"T for alpha + {plan.slack}"] = NEVER if horizon is None else f"{horizon:,}"
    return row | {"abstaining": _percent(bound.abstaining), "learning": _percent(bound.learning)}


def _percent(bound: float) -> str:
    """Return a bound in percent, rounded up; "none" if it says nothing."""
    return NONE if bound >= 1 else round_up(bound)


def _explain_none(rows: Sequence[Mapping[str, str]]) -> str:
    """Return what "none" means, if a row says so."""
    return f"{NONE}: no limit below 100% is proved." if any(NONE in row.values() for row in rows) else ""


def _explain_never(plan: Plan, rows: Sequence[Mapping[str, str]]) -> str:
    """Return to what the limits fall that never reach alpha + slack, if a row says so."""
    case, names = plan.case._replace(horizon=LONGEST_HORIZON), [x["learner"] for x in rows if NEVER in x.values()]
    limits = ", ".join(f"{guarantee(learners()[name], case).fdr:.2%} for {name}" for name in names)
    reason = f"with {_exact(plan.answered)} answered, the limit falls towards {limits}, and no lower"
    return f"{NEVER}: {reason}. Withheld questions count, too; audits prove a limit without them." if names else ""


def _exact(share: float) -> str:
    """Return a share in percent, with all its digits."""
    return f"{100 * share:.12g}%"


EXAMPLES = "examples:\n  {exaul} plan --alpha 0.1 --warm-start LOG.csv --per-day 10000 --audits-per-day 100"
COMMANDS = {"plan": Command((Plan,), main, EXAMPLES)}
