"""Start from a log of past answers, decide for twenty questions whether to answer, and learn from the users."""

from pathlib import Path

import pandas as pd

from exaul import Abstainer

LOG = Path(__file__).with_name("log.csv")  # columns: question, score, correct; synthetic


def main() -> None:
    """Print a line for each question, then the learner's figures."""
    log = pd.read_csv(LOG)
    history, live = log[:940], log[940:960]  # twenty later rows play the users to come
    abstainer = Abstainer(alpha=0.1, warm_start=history)  # or the path of a log
    print(abstainer.started)
    for row in live.itertuples():
        decision = abstainer.decide(row.score)
        if not decision.answer:
            print(f"{row.question}: I don't know. (score {row.score:.2f})")
            continue
        feedback = "up" if row.correct else "down"
        abstainer.feedback(decision.id, feedback)
        print(f"{row.question}: an answer with score {row.score:.2f}; feedback: {feedback}")
    figures = abstainer.figures()
    answers, risk, bound = figures["answers"], figures["feedback_risk"], figures["feedback_risk_bound"]
    print(f"{answers:.0f} answers shown, {figures['wrong']:.0f} of them wrong:", end=" ")
    print(f"{risk:.1f} more than the target of 10% (on any questions, at most {bound:.1f} more)")


if __name__ == "__main__":
    main()
