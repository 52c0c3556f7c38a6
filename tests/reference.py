"""The oracle: the paper's algorithms in plain float64 NumPy, one trial, one round at a time.

It is written from the paper, uses thresholds and scores but no cuts, and shares no code with the engine. Two
details make runs comparable: an arm is drawn by inverting the distribution function at a given uniform, and the
last arm abstains even at a score of exactly 1.
"""

import numpy as np


def abstains(thresholds, score):
    """Return 1{S(x; tau) = IDK} for every arm; the last arm always abstains, which Lemma 1 needs."""
    idk = thresholds > score
    idk[-1] = True
    return idk


def compute_loss(idk, error, alpha, lam):
    """Return the loss of Algorithm ComputeLoss (eq. 4): a = 1{IDK}, d = 1{answer} e - alpha 1{answer} + alpha."""
    a = np.where(idk, 1.0, 0.0)
    d = np.where(idk, 0.0, error) - alpha * np.where(idk, 0.0, 1.0) + alpha
    return (a + lam * d) / (1 + lam)


def draw(p, uniform):
    """Draw tau_t ~ p_t: the first arm whose cumulative probability exceeds the uniform."""
    return int(np.argmax(np.cumsum(p) > uniform))


def normalise(log_weights):
    """Return p_t, the weights w_t divided by their sum."""
    w = np.exp(log_weights - log_weights.max())
    return w / w.sum()


def simulate(learner, thresholds, scores, errors, uniforms, alpha, lam, eta, gamma, arm=None):
    """Simulate a game. Returns decisions [T], and the cumulative charges of the arms [H], or None.

    Eta and gamma are sequences over rounds. ``arm`` is the arm that a fixed learner holds.
    """

    def ask(t, decisions, p):
        return scores[t], errors[t]

    return simulate_against(learner, thresholds, ask, uniforms, alpha, lam, eta, gamma, arm)


def simulate_against(learner, thresholds, ask, uniforms, alpha, lam, eta, gamma, arm=None):
    """Simulate a game against an adversary: ``ask(t, decisions, p)`` gives the score and error of round t."""
    if learner in ("refit", "learn-then-test"):
        return simulate_held(learner, thresholds, ask, len(uniforms), alpha)
    rule = rule_of(learner, thresholds, alpha, lam, eta, gamma, arm)
    decisions: list[bool] = []
    for t in range(len(uniforms)):
        score, error = ask(t, decisions, rule.distribution())
        answered, decision = rule.decide(score, uniforms[t])
        decisions.append(answered)
        rule.learn(decision, answered, error)
    return np.array(decisions), getattr(rule, "total", None)


def simulate_feedback(
    learner, thresholds, scores, errors, uniforms, coins, delays, alpha, lam, eta, gamma, fields, log=None
):
    """Simulate a game with imperfect feedback, as a program sees it; ``fields`` are those of a sweep.

    ``coins`` draw which answers get feedback, ``delays`` when it arrives. An abstention weighs as much as the share
    of recent answers that were learned. Returns decisions [T]; the answers that were learned, as (round, whether it
    was observed, the error learned); the sum of the weights of learned rounds; and the number of answers learned
    since the last one was given.
    """
    rate, delay, bias = fields.get("feedback_rate", 1.0), fields.get("delay", 0), fields.get("bias", 1.0)
    down, up = fields.get("flips", (0.0, 0.0))
    imputed = {"skip": None, "wrong": 1.0, "right": 0.0}[fields.get("missing", "skip")]
    rule = rule_of(learner, thresholds, alpha, lam, eta, gamma, log=log)
    decisions: list[bool] = []
    learned: list[tuple] = []
    open_answers: dict = {}  # by round: what the rule keeps of the answer
    feedback: dict = {}  # by round: the feedback that will come
    slots: dict = {}  # the last round of each slot
    rounds, since = 0.0, 0
    recent_answers = recent_learned = 0.0

    def learn_answer(t, observed, error):
        nonlocal rounds, since, recent_learned
        rule.learn(open_answers.pop(t), True, error)
        learned.append((t, observed, error))
        rounds, since, recent_learned = rounds + 1, since + 1, recent_learned + 1

    for t in range(len(scores)):
        reserved = len(open_answers) if fields.get("reserve") else 0
        answered, decision = rule.decide(scores[t], uniforms[t], reserved)
        decisions.append(answered)
        if answered:
            since = 0
            recent_answers, recent_learned = recent_answers * 1023 / 1024 + 1, recent_learned * 1023 / 1024
            open_answers[t] = decision
            wrong, right = rate * min(1, bias), rate * min(1, 1 / bias)
            shows = right * (1 - errors[t]) + wrong * errors[t]
            false_negative, false_positive = shows * down * (1 - errors[t]), shows * up * errors[t]
            if coins[t] < false_negative:
                feedback[t] = 1.0
            elif coins[t] < false_negative + false_positive:
                feedback[t] = 0.0
            elif coins[t] < shows:
                feedback[t] = errors[t]
        else:
            weight = min(1.0, (recent_learned + 1) / (recent_answers + 1))
            rule.learn(decision, False, 0.0, weight)
            rounds += weight
        expired = t - fields.get("expires", 100_000)
        if expired in open_answers:
            if imputed is None:
                del open_answers[expired]
            else:
                learn_answer(expired, False, imputed)
        slot = int(delays[t] * (delay + 1))
        due = t if slot == delay else slots.get(slot)
        slots[slot] = t
        if due in open_answers and due in feedback:
            learn_answer(due, True, feedback[due])
    return np.array(decisions), learned, rounds, since


def rule_of(learner, thresholds, alpha, lam, eta, gamma, arm=None, log=None):
    """Return the rule of a learner; its rates are sequences over the rounds that are learned.

    ``distribution()`` are the probabilities of the arms, if it draws one; ``decide(score, uniform, reserved)``
    returns whether it answers, and what ``learn(decision, answered, error)`` needs, at once or later. ``arm`` is of
    ``simulate``; ``log``, scores and errors, is what ``aci-rank`` starts from.
    """
    if learner == "aci-rank":
        return AciRank(thresholds, alpha, log=log)
    return Weights(learner, thresholds, alpha, lam, eta, gamma, arm)


class Weights:
    """Exponential weights, by whichever estimates; and ``fixed``, all weight on one arm."""

    def __init__(self, learner, thresholds, alpha, lam, eta, gamma, arm):
        self.learner, self.thresholds, self.alpha, self.lam = learner, thresholds, alpha, lam
        self.eta, self.gamma, self.arm = eta, gamma, arm
        real = np.result_type(alpha).type  # float64, or long double if alpha and lambda are
        self.total = np.zeros(len(thresholds), real)  # cumulative (estimated) losses of the arms
        self.log_prior = np.zeros(len(thresholds), real)  # up to a constant
        if learner == "exaul-known":  # half of the mass on the last arm
            self.log_prior[:] = -np.log(real(2 * (len(thresholds) - 1)))
            self.log_prior[-1] = -np.log(real(2))
        self.t = 0.0  # rounds learned, by their weights
        self.questions = self.now = 0

    def distribution(self):
        if self.questions % 256 == 0:
            self.now = int(self.t)  # a block of 256 questions has the rates of what was learned before it
        if self.learner == "fixed":
            return np.arange(len(self.thresholds)) == self.arm
        return normalise(self.log_prior - self.eta[self.now] * self.total)

    def decide(self, score, uniform, reserved=0):
        p, idk = self.distribution(), abstains(self.thresholds, score)
        self.questions += 1
        drawn = self.arm if self.learner == "fixed" else draw(p, uniform)
        return not idk[drawn], (p, idk, drawn)

    def learn(self, decision, answered, error, weight=1.0):
        p, idk, drawn = decision
        loss, charge = compute_loss(idk, error, self.alpha, self.lam), np.zeros(len(p))
        eta, gamma = self.eta[self.now], self.gamma[self.now]
        self.t += weight
        if self.learner == "ew":  # Algorithm EW-CA: every arm's true loss
            charge = loss
        elif self.learner == "exp3-ix":  # Algorithm Exp3-IX-CA: the drawn arm's loss over gamma + p
            charge[drawn] = loss[drawn] / (gamma + p[drawn])
        elif self.learner == "exaul":  # ExAUL: the losses of all arms that decide as the drawn one
            unlocked = idk != answered
            charge[unlocked] = loss[unlocked] / (gamma + p[unlocked].sum())
        elif self.learner == "exaul-known":  # abstaining arms: their loss; the others: an estimate, if answered
            charge[idk] = loss[idk]
            if answered:
                charge[~idk] = np.minimum(loss[~idk] / (gamma + p[~idk].sum()), 2 / eta)
        elif self.learner != "fixed":
            raise ValueError(self.learner)
        self.total += weight * charge


class AciRank:
    """``aci-rank``: the share s of the highest scores that is answered, moved by answers, started from a log.

    Scores rank among counts n of recent scores by the number of thresholds that answer; old scores count less.
    """

    def __init__(self, thresholds, alpha, step=1 / 40, log=None):
        self.thresholds, self.alpha, self.n = thresholds, alpha, np.full(len(thresholds), 1 / 32)
        self.n[0] = 0.0
        self.step, self.s, self.R, self.answers = step, 0.3, 0.0, 0
        if log is not None:
            self.start(*log)

    def distribution(self):
        return None

    def ranked(self, score):
        """Count a score. Return the share of earlier scores that are at most this one."""
        c = int((~abstains(self.thresholds, score)).sum())
        share = self.n[: c + 1].sum() / self.n.sum()
        self.n *= 8191 / 8192
        self.n[c] += 1
        return share

    def start(self, scores, errors):
        """Count the scores of a log; answer what its best threshold does, with half of the lowest level; or all."""
        for score in scores:
            self.ranked(score)
        self.s = 0.0
        for k, threshold in enumerate(self.thresholds[:-1], 1):  # threshold k answers the cuts from k on
            shown = [e for f, e in zip(scores, errors, strict=True) if f >= threshold]
            if shown and sum(shown) <= self.alpha * len(shown) + 1e-12:
                self.s = 1.0 if k == 1 else (self.n[k:].sum() - self.n[k] / 2) / self.n.sum()
                break
        if len(scores) * self.alpha < 3:
            self.s = min(self.s, 0.3)

    def decide(self, score, uniform, reserved=0):
        s = self.s - self.step * (1 - self.alpha) * reserved
        return bool(self.ranked(score) > 1 - s and s > 1e-9), None

    def learn(self, decision, answered, error, weight=1.0):
        if answered:
            self.answers += 1
            aim = self.alpha - min(max(0.0, self.R) / self.answers, self.alpha / 2)
            self.R += error - self.alpha
            self.s = min(1.0, self.s + self.step * (aim - error))
        elif self.s < 1 / 20:
            self.s += weight * self.step / 200


def binomial(successes, n, p):
    """Return P(Bin(n, p) <= most)."""
    k = np.arange(n)
    log_choose = np.concatenate([[0.0], np.cumsum(np.log(n - k) - np.log(k + 1))])
    k = np.arange(n + 1)
    return np.exp(log_choose + k * np.log(p) + (n - k) * np.log(1 - p))[: int(successes) + 1].sum()


def hoeffding_bentkus(n, wrong, alpha, rated):
    """Return the p-value of a mean error above alpha, from n errors with sum ``wrong``: ratings, or 0 and 1."""
    if n == 0:
        return 1.0
    p = min(wrong / n, alpha)
    unlikely = sum(x * np.log(x / y) for x, y in ((p, alpha), (1 - p, 1 - alpha)) if x > 0)
    return min(np.exp(-n * unlikely), (np.e if rated else 1.0) * binomial(np.ceil(wrong - 1e-9), n, alpha))


def holm(p, delta):
    """Return the hypotheses that Holm's procedure rejects."""
    rejected: list[int] = []
    for rank, k in enumerate(np.argsort(p, kind="stable")):
        if p[k] > delta / (len(p) - rank):
            break
        rejected.append(int(k))
    return rejected


def simulate_held(learner, thresholds, ask, rounds, alpha):
    """Simulate a learner that answers all, and then holds a threshold, or the last if none is good.

    ``refit`` takes, every 256 rounds, the lowest with FDR <= alpha on 2,000 labels; ``learn-then-test``, after
    1,024 rounds, the lowest that is certified at 1 - .05.
    """
    H = len(thresholds)
    labels: list[tuple] = []  # which thresholds answered, and the error
    decisions: list[bool] = []
    held = 0
    for t in range(rounds):
        score, error = ask(t, decisions, None)
        idk = abstains(thresholds, score)
        if (t > 0 and t % 256 == 0) if learner == "refit" else t == 1024:
            answers, errors = (np.array(x, float) for x in zip(*labels[-2000:], strict=True))
            count, wrong = answers.sum(axis=0), errors @ answers
            good = [k for k in range(H) if count[k] > 0 and wrong[k] <= alpha * count[k] + 1e-9]
            if learner == "learn-then-test":
                rated = not np.isin(errors, [0, 1]).all()
                pairs = zip(count[:-1], wrong[:-1], strict=True)
                good = holm([hoeffding_bentkus(int(m), w, alpha, rated) for m, w in pairs], 0.05)
            held = min(good, default=H - 1)
        decisions.append(not idk[held])
        if decisions[-1]:
            labels.append((~idk, error))
    return np.array(decisions), None


def fixed_losses(thresholds, scores, errors, alpha, lam):
    """Return the cumulative loss of every fixed arm."""
    return sum(compute_loss(abstains(thresholds, f), e, alpha, lam) for f, e in zip(scores, errors, strict=True))


def metrics(decisions, thresholds, scores, errors, alpha, lam):
    """Return FDR (eq. 2), inefficiency, FDR risk (eq. 1), cumulative loss, best arm's loss, best arm, regret."""
    wrong = sum(e for d, e in zip(decisions, errors, strict=True) if d)
    answered = int(sum(decisions))
    loss = sum(
        float(compute_loss(np.array([not d]), e, alpha, lam)[0]) for d, e in zip(decisions, errors, strict=True)
    )
    arms = fixed_losses(thresholds, scores, errors, alpha, lam)
    return {
        "answered": answered,
        "fdr": wrong / answered if answered else alpha,
        "inefficiency": 1 - answered / len(decisions),
        "fdr_risk": sum(e - alpha for d, e in zip(decisions, errors, strict=True) if d),
        "loss": loss,
        "best_loss": float(arms.min()),
        "regret": loss - float(arms.min()),
    }
