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
    """Simulate a game; eta and gamma are sequences over rounds. Returns decisions [T] and P(answer) [T].

    ``arm`` is the arm that a fixed learner holds.
    """

    def ask(t, decisions, p):
        return scores[t], errors[t]

    return simulate_against(learner, thresholds, ask, uniforms, alpha, lam, eta, gamma, arm)


def simulate_against(learner, thresholds, ask, uniforms, alpha, lam, eta, gamma, arm=None):
    """Simulate a game against an adversary: ``ask(t, decisions, p)`` gives the score and error of round t."""
    if learner == "refit":
        return simulate_refit(thresholds, ask, len(uniforms), alpha)
    if learner == "learn-then-test":
        return simulate_learn_then_test(thresholds, ask, len(uniforms), alpha)
    rule = rule_of(learner, thresholds, alpha, lam, eta, gamma, arm)
    decisions: list[bool] = []
    probabilities: list[float] = []
    for t in range(len(uniforms)):
        score, error = ask(t, decisions, rule.distribution())
        answered, P, kept = rule.decide(score, uniforms[t])
        decisions.append(answered)
        probabilities.append(P)
        rule.learn(kept, answered, error)
    return np.array(decisions), np.array(probabilities)


def simulate_feedback(learner, thresholds, scores, errors, uniforms, coins, delays, alpha, lam, eta, gamma, how):
    """Simulate a game with imperfect feedback, as a program sees it; ``how`` are fields of a sweep.

    ``coins`` draw which answers get feedback and which abstentions are learned, ``delays`` when feedback arrives.
    Returns decisions [T]; the answers that were learned, as (round, whether it was observed, the error learned);
    the number of learned rounds; and the number of answers learned since the last one was given.
    """
    rate, delay, bias = how.get("feedback_rate", 1.0), how.get("delay", 0), how.get("bias", 1.0)
    down, up = how.get("flips", (0.0, 0.0))
    imputed = {"skip": None, "wrong": 1.0, "right": 0.0}[how.get("missing", "skip")]
    rule = rule_of(learner, thresholds, alpha, lam, eta, gamma)
    decisions: list[bool] = []
    learned: list[tuple] = []
    open_answers: dict = {}  # by round: what the rule keeps of the answer
    feedback: dict = {}  # by round: the feedback that will come
    slots: dict = {}  # the last round of each slot
    rounds = since = 0
    recent_answers = recent_learned = 0.0

    def learn_answer(t, observed, error):
        nonlocal rounds, since, recent_learned
        rule.learn(open_answers.pop(t), True, error)
        learned.append((t, observed, error))
        rounds, since, recent_learned = rounds + 1, since + 1, recent_learned + 1

    for t in range(len(scores)):
        reserved = len(open_answers) if how.get("reserve") else 0
        answered, _, kept = rule.decide(scores[t], uniforms[t], reserved)
        decisions.append(answered)
        if answered:
            since = 0
            recent_answers, recent_learned = recent_answers * 1023 / 1024 + 1, recent_learned * 1023 / 1024
            open_answers[t] = kept
            wrong, right = rate * min(1, bias), rate * min(1, 1 / bias)
            shows = right * (1 - errors[t]) + wrong * errors[t]
            false_negative, false_positive = shows * down * (1 - errors[t]), shows * up * errors[t]
            if coins[t] < false_negative:
                feedback[t] = 1.0
            elif coins[t] < false_negative + false_positive:
                feedback[t] = 0.0
            elif coins[t] < shows:
                feedback[t] = errors[t]
        elif coins[t] < (recent_learned + 1) / (recent_answers + 1):
            rule.learn(kept, False, 0.0)
            rounds += 1
        expired = t - how.get("expires", 100_000)
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


def rule_of(learner, thresholds, alpha, lam, eta, gamma, arm=None):
    """Return the rule of a learner; its rates are sequences over the rounds that are learned.

    ``distribution()`` are the probabilities of the arms, if it draws one; ``decide(score, uniform, reserved)``
    returns whether it answers, with which probability, and what ``learn(kept, answered, error)`` needs, at once or
    later.
    """
    if learner == "log-price":
        return LogPrice(thresholds, alpha)
    if learner == "threshold":
        return Threshold(thresholds, alpha, eta, gamma)
    if learner == "aci-score":  # no drift
        return Threshold(thresholds, alpha, eta, np.zeros(len(eta)))
    if learner == "ranked-threshold":
        return RankedThreshold(thresholds, alpha)
    if learner == "pi-rank":
        return PiRank(thresholds, alpha)
    if learner == "aci-rank":
        return AciRank(thresholds, alpha)
    return Weights(learner, thresholds, alpha, lam, eta, gamma, arm)


class Weights:
    """Exponential weights, by whichever estimates; and ``fixed``, all weight on one arm."""

    def __init__(self, learner, thresholds, alpha, lam, eta, gamma, arm):
        self.learner, self.thresholds, self.alpha, self.lam = learner, thresholds, alpha, lam
        self.eta, self.gamma, self.arm = eta, gamma, arm
        self.total = np.zeros(len(thresholds))  # cumulative (estimated) losses of the arms
        self.log_prior = np.zeros(len(thresholds))  # up to a constant
        if learner == "exaul-known":  # half of the mass on the last arm
            self.log_prior[:] = -np.log(2 * (len(thresholds) - 1))
            self.log_prior[-1] = -np.log(2)
        self.t = 0

    def distribution(self):
        if self.learner == "fixed":
            return np.arange(len(self.thresholds)) == self.arm
        return normalise(self.log_prior - self.eta[self.t] * self.total)

    def decide(self, score, uniform, reserved=0):
        p, idk = self.distribution(), abstains(self.thresholds, score)
        drawn = self.arm if self.learner == "fixed" else draw(p, uniform)
        return not idk[drawn], p[~idk].sum(), (p, idk, drawn)

    def learn(self, kept, answered, error):
        p, idk, drawn = kept
        loss = compute_loss(idk, error, self.alpha, self.lam)
        gamma = self.gamma[self.t]
        self.t += 1
        if self.learner == "ew":  # Algorithm EW-CA: every arm's true loss
            self.total += loss
        elif self.learner == "exp3-ix":  # Algorithm Exp3-IX-CA: the drawn arm's loss over gamma + p
            self.total[drawn] += loss[drawn] / (gamma + p[drawn])
        elif self.learner in ("exaul", "exaul-tuned"):  # ExAUL: the losses of all arms that decide as the drawn one
            unlocked = idk != answered
            self.total[unlocked] += loss[unlocked] / (gamma + p[unlocked].sum())
        elif self.learner == "exaul-known":  # abstaining arms: their loss; the others: an estimate, if answered
            eta, P = self.eta[self.t - 1], p[~idk].sum()
            self.total[idk] += loss[idk]
            if answered:
                self.total[~idk] += np.minimum(loss[~idk] / (gamma + P), 2 / eta)
        elif self.learner != "fixed":
            raise ValueError(self.learner)


class Threshold:
    """``threshold``: z is a position among the arms; the arm at or below z, up to rounding, is held."""

    def __init__(self, thresholds, alpha, mu, nu):
        self.thresholds, self.alpha, self.mu, self.nu = thresholds, alpha, mu, nu
        self.z, self.t = (len(thresholds) - 1) / 2, 0

    def distribution(self):
        return None

    def decide(self, score, uniform, reserved=0):
        H, idk = len(self.thresholds), abstains(self.thresholds, score)
        mu = self.mu[min(self.t, len(self.mu) - 1)]
        z = self.z + mu * H * (1 - self.alpha) * reserved
        held = round(z) if abs(z - round(z)) < 1e-6 else int(np.floor(z))
        answered = held < H and not idk[held]
        return answered, float(answered), None

    def learn(self, kept, answered, error):
        H, t = len(self.thresholds), self.t
        moved = self.mu[t] * H * (error - self.alpha) if answered else -self.nu[t] * H
        self.z, self.t = max(0.0, self.z + moved), t + 1


class Ranks:
    """Counts n of recent scores by the number of thresholds that answer; old scores count less."""

    def __init__(self, thresholds, alpha, decay, prior=0.25):
        self.thresholds, self.alpha, self.decay = thresholds, alpha, decay
        self.n = np.full(len(thresholds), prior)
        self.n[0] = 0.0

    def distribution(self):
        return None

    def ranked(self, score):
        """Count a score. Return the shares of earlier scores that are at most this one, and that equal it."""
        c, n = int((~abstains(self.thresholds, score)).sum()), self.n
        shares = n[: c + 1].sum() / n.sum(), n[c] / n.sum()
        n *= self.decay
        n[c] += 1
        return shares


class RankedThreshold(Ranks):
    """``ranked-threshold``: y, S, R, A, h, k, and the share s of the highest scores that is answered."""

    def __init__(self, thresholds, alpha):
        super().__init__(thresholds, alpha, 8191 / 8192, 1 / 32)
        self.y, self.S, self.R, self.A, self.h, self.k, self.t = 20.0, 0.0, 0.0, 0, 0, -1, 0

    def decide(self, score, uniform, reserved=0):
        high, _ = self.ranked(score)
        K = 40 + np.sqrt(self.t + 1) / 5
        more = (1 - self.alpha) * reserved
        s = max(0.0, 1 - (self.y + more) / K) ** 2
        if self.k >= 0:
            s = max(s, 0.1)
        if reserved and self.S + more > 2 * K:
            s = 0.0
        answered = bool(s > 0 and high > 1 - s)
        return answered, float(answered), None

    def learn(self, kept, answered, error):
        self.t += 1
        K, alpha = 40 + np.sqrt(self.t) / 5, self.alpha
        if answered:
            self.h, self.A = 0, self.A + 1
            aim = alpha - min(max(0.0, self.R) / self.A / 2, alpha / 4)
            self.y, self.S = max(0.0, self.y + error - aim), max(0.0, self.S + error - alpha)
            self.R += error - alpha
            if error > alpha:
                self.k = -1
            elif self.k >= 0:
                self.k += 1
                self.y = min(self.y, max(K * (1 - min(1.0, alpha * self.k / 2) ** 2), self.S - K))
        else:
            self.h += 1
            if self.h >= 256 and self.S <= K + 3:
                self.h = self.k = 0


class PiRank(Ranks):
    """``pi-rank``: the tracked share p of the highest scores, lowered as S, the rise of R, nears .47 sqrt(t)."""

    def __init__(self, thresholds, alpha):
        super().__init__(thresholds, alpha, 8191 / 8192)
        self.p, self.S, self.t = 0.5, 0.0, 0

    def decide(self, score, uniform, reserved=0):
        high, _ = self.ranked(score)
        x = (self.S + (1 - self.alpha) * reserved) / (0.47 * np.sqrt(self.t + 1))
        s = self.p - 0.16 * x / (1 - x**2) if x < 1 else 0.0
        answered = bool(s > 0 and high > 1 - s)
        return answered, float(answered), None

    def learn(self, kept, answered, error):
        self.t += 1
        if answered:
            self.p = min(1.0, max(0.1, self.p - 0.005 * (error - self.alpha)))
            self.S = max(0.0, self.S + error - self.alpha)


class AciRank(Ranks):
    """``aci-rank``: the share s of the highest scores that is answered, a step up or down after each answer."""

    def __init__(self, thresholds, alpha):
        super().__init__(thresholds, alpha, 511 / 512)
        self.s = 0.5

    def decide(self, score, uniform, reserved=0):
        high, width = self.ranked(score)
        s = self.s - 0.01 * (1 - self.alpha) * reserved
        P = 0.0
        if s > 0:
            P = float(np.clip((high - (1 - s)) / width, 0, 1)) if width > 0 else float(high > 1 - s)
        return bool(uniform < P), P, None

    def learn(self, kept, answered, error):
        if answered:
            self.s = min(1.0, self.s + 0.01 * (self.alpha - error))


class LogPrice:
    """``log-price``, with weights and price in logarithms; rates are held over 256 rounds."""

    def __init__(self, thresholds, alpha):
        self.thresholds, self.alpha, self.t = thresholds, alpha, 0
        self.log_w = np.zeros(len(thresholds))
        self.first = self.y = np.log(1 / alpha)
        self.R = self.D = 0.0

    def distribution(self):
        return normalise(self.log_w)

    def shut(self, reserved=0):
        return self.R + (1 - self.alpha) * (1 + reserved) > 5 + 2 * np.sqrt(self.t + 1)

    def decide(self, score, uniform, reserved=0):
        idk = abstains(self.thresholds, score)
        P = normalise(self.log_w)[~idk].sum()
        shut = self.shut(reserved)
        return not shut and bool(uniform < P), 0.0 if shut else P, (idk, P)

    def learn(self, kept, answered, error):
        (idk, P), log_w, alpha = kept, self.log_w, self.alpha
        shut = self.shut()
        self.t = t = self.t + 1
        eta = 3 * np.sqrt(np.log(len(log_w)) / (256 * np.ceil(t / 256)))
        sigma = min(3e-6, 1 / t)
        s = np.exp(self.y) / (1 + np.exp(self.y))
        if not shut:
            log_w[idk] -= eta * (1 - s + alpha * s)
        if answered:
            log_w[~idk] -= min(eta * s * error / P, 10)
            self.R += error - alpha
            self.y = max(0.0, self.y + 0.05 * (error - alpha))
            self.D = max(0.0, self.D + error - min(3 * alpha, (1 + alpha) / 2))
        if not shut:
            if self.D > 10 and self.y < self.first:
                self.D, self.y = 0.0, self.first
                log_w[-1] = np.logaddexp(log_w[-1], np.logaddexp.reduce(log_w))
            share = 0.99 * sigma / (1 - 0.99 * sigma)
            log_w[-1] = np.logaddexp(log_w[-1], np.log(share) + np.logaddexp.reduce(log_w))
        if t % 256 == 0:
            even = 256 * 0.01 * sigma / (1 - 256 * 0.01 * sigma)
            self.log_w = np.logaddexp(log_w, np.log(even / len(log_w)) + np.logaddexp.reduce(log_w))


def simulate_refit(thresholds, ask, rounds, alpha):
    """Simulate ``refit``: every 256 rounds, hold the lowest threshold with FDR <= alpha on 2,000 labels."""
    H = len(thresholds)
    labels: list[tuple] = []  # which thresholds answered, and the error
    decisions: list[bool] = []
    held = 0
    for t in range(rounds):
        score, error = ask(t, decisions, None)
        idk = abstains(thresholds, score)
        if t > 0 and t % 256 == 0:
            answers, errors = (np.array(x, float) for x in zip(*labels[-2000:], strict=True))
            count, wrong = answers.sum(axis=0), errors @ answers
            good = [k for k in range(H) if count[k] > 0 and wrong[k] <= alpha * count[k] + 1e-9]
            held = min(good, default=H - 1)
        decisions.append(not idk[held])
        if decisions[-1]:
            labels.append((~idk, error))
    return np.array(decisions), np.array(decisions, float)


def binomial(most, n, p):
    """Return P(Bin(n, p) <= most)."""
    k = np.arange(n)
    log_choose = np.concatenate([[0.0], np.cumsum(np.log(n - k) - np.log(k + 1))])
    k = np.arange(n + 1)
    return np.exp(log_choose + k * np.log(p) + (n - k) * np.log(1 - p))[: int(most) + 1].sum()


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


def simulate_learn_then_test(thresholds, ask, rounds, alpha, n=1024, delta=0.05):
    """Answer n rounds; then hold the lowest threshold that is certified at 1 - delta, or the last if none is."""
    H = len(thresholds)
    labels: list[tuple] = []  # which thresholds answered, and the error
    decisions: list[bool] = []
    held = 0
    for t in range(rounds):
        score, error = ask(t, decisions, None)
        idk = abstains(thresholds, score)
        if t == n:
            answers, errors = (np.array(x, float) for x in zip(*labels, strict=True))
            rated = not np.isin(errors, [0, 1]).all()
            each = zip(answers.sum(axis=0)[:-1], (errors @ answers)[:-1], strict=True)
            held = min(holm([hoeffding_bentkus(int(m), w, alpha, rated) for m, w in each], delta), default=H - 1)
        decisions.append(not idk[held])
        if t < n:
            labels.append((~idk, error))
    return np.array(decisions), np.array(decisions, float)


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


def best_fixed(count, wrong, answer_cost, abstain_cost):
    """Return the least losses [cells, B] and their (lowest) arms (eq. 3), from rounds and errors by cut."""
    trials, arms = count.shape
    abstained = np.cumsum(count, axis=1)
    missed = np.zeros((trials, arms))
    missed[:, :-1] = np.cumsum(wrong[:, :0:-1], axis=1)[:, ::-1]
    cells = len(answer_cost)
    losses, best = np.empty((cells, trials)), np.empty((cells, trials), np.int32)
    for cell, (a, b) in enumerate(zip(answer_cost, abstain_cost, strict=True)):
        total = a * missed + b * abstained
        best[cell] = np.argmin(total, axis=1)
        losses[cell] = np.take_along_axis(total, best[cell][:, None], axis=1)[:, 0]
    return losses, best
