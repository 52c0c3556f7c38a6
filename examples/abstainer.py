"""Decide for twenty questions whether an answer is shown, and learn from the users."""

import random

from exaul import Abstainer


def main() -> None:
    """Print a line for each question, then the learner's figures."""
    rng = random.Random(0)
    abstainer = Abstainer(alpha=0.2, learner="threshold", grid="uniform", seed=0)
    for question in range(1, 21):
        score = rng.betavariate(2, 1)  # how sure the model is of its answer
        decision = abstainer.decide(score)
        if not decision.answer:
            print(f"{question}: I don't know. (score {score:.2f})")
            continue
        feedback = "up" if rng.random() < score else "down"
        abstainer.feedback(decision.id, feedback)
        print(f"{question}: an answer with score {score:.2f}; feedback: {feedback}")
    figures = abstainer.figures()
    print(f"{figures['answers']:.0f} answers shown, {figures['fdr_observed']:.0%} of them wrong")


if __name__ == "__main__":
    main()
