"""The oracle: the paper's algorithms in plain float64 NumPy, one trial, one round at a time.

A transcription of its own: it knows thresholds and scores, never cuts, and shares no code
with the engine. The only liberties are the two that make runs comparable: the arm is drawn by inverting the
distribution function at a given uniform, and the last arm abstains at a score of exactly 1 too.
"""

import numpy as np


def abstains(thresholds, score):
    """1{S(x; tau) = IDK} for every arm; Lemma 1 needs an arm, the last, that always abstains."""
    idk = thresholds > score
    idk[-1] = True
    return idk


def compute_loss(idk, error, alpha, lam):
    """Algorithm ComputeLoss (eq. 4): a = 1{IDK}, d = 1{answer} e - alpha 1{answer} + alpha."""
    a = np.where(idk, 1.0, 0.0)
    d = np.where(idk, 0.0, error) - alpha * np.where(idk, 0.0, 1.0) + alpha
    return (a + lam * d) / (1 + lam)


def draw(p, uniform):
    """tau_t ~ p_t: the first arm whose cumulative probability exceeds the uniform."""
    return int(np.argmax(np.cumsum(p) > uniform))


def normalise(log_weights):
    """p_t ~ w_t."""
    w = np.exp(log_weights - log_weights.max())
    return w / w.sum()


def play(learner, thresholds, scores, errors, uniforms, alpha, lam, eta, gamma, arm=None):
    """Play a game; eta and gamma are sequences over rounds. Returns decisions [T] and P(answer) [T].

    ``arm`` is the arm that a fixed learner holds.
    """

    def ask(t, decisions, p):
        return scores[t], errors[t]

    return play_against(learner, thresholds, ask, uniforms, alpha, lam, eta, gamma, arm)


def play_against(learner, thresholds, ask, uniforms, alpha, lam, eta, gamma, arm=None):
    """``play`` against an adversary: ``ask(t, decisions, p)`` gives the score and error of round t."""
    if learner == "log-price":
        return play_log_price(thresholds, ask, uniforms, alpha)
    if learner == "threshold":
        return play_threshold(thresholds, ask, len(uniforms), alpha, eta, gamma)
    if learner == "ranked-threshold":
        return play_ranked_threshold(thresholds, ask, len(uniforms), alpha)
    if learner == "aci-rank":
        return play_aci_rank(thresholds, ask, uniforms, alpha)
    if learner == "aci-score":  # no drift
        return play_threshold(thresholds, ask, len(uniforms), alpha, eta, np.zeros(len(uniforms)))
    if learner == "refit":
        return play_refit(thresholds, ask, len(uniforms), alpha)
    if learner == "learn-then-test":
        return play_learn_then_test(thresholds, ask, len(uniforms), alpha)
    H = len(thresholds)
    total = np.zeros(H)  # cumulative (estimated) losses of the arms
    decisions: list[bool] = []
    probabilities: list[float] = []
    for t in range(len(uniforms)):
        p = np.arange(H) == arm if learner == "fixed" else normalise(-eta[t] * total)
        score, error = ask(t, decisions, p)
        idk = abstains(thresholds, score)
        if learner == "fixed":
            decisions.append(not idk[arm])
            probabilities.append(float(not idk[arm]))
            continue
        drawn = draw(p, uniforms[t])
        abstained = idk[drawn]
        decisions.append(not abstained)
        probabilities.append(p[~idk].sum())
        loss = compute_loss(idk, error, alpha, lam)
        if learner == "ew":  # Algorithm EW-CA: every arm's true loss
            total += loss
        elif learner == "exp3-ix":  # Algorithm Exp3-IX-CA: the drawn arm's loss over gamma + p
            total[drawn] += loss[drawn] / (gamma[t] + p[drawn])
        elif learner == "exaul":  # Algorithm ExAUL: the losses of all arms that decide as the drawn one did
            unlocked = idk == abstained
            total[unlocked] += loss[unlocked] / (gamma[t] + p[unlocked].sum())
        else:
            raise ValueError(learner)
    return np.array(decisions), np.array(probabilities)


def play_threshold(thresholds, ask, rounds, alpha, mu, nu):
    """``threshold``: z in arms; where it stands on a threshold, up to rounding, that threshold is held."""
    H = len(thresholds)
    z = (H - 1) / 2
    decisions: list[bool] = []
    for t in range(rounds):
        score, error = ask(t, decisions, None)
        idk = abstains(thresholds, score)
        held = round(z) if abs(z - round(z)) < 1e-6 else int(np.floor(z))
        answered = held < H and not idk[held]
        decisions.append(answered)
        z = max(0.0, z + mu[t] * H * (error - alpha) if answered else z - nu[t] * H)
    return np.array(decisions), np.array(decisions, float)


def play_ranked_threshold(thresholds, ask, rounds, alpha):
    """``ranked-threshold``: y, S, R, A, h, k, and counts n of recent scores, by how many thresholds answer."""
    H = len(thresholds)
    y, S, R, A, h, k = 20.0, 0.0, 0.0, 0, 0, -1
    n = np.full(H, 0.25)
    n[0] = 0.0
    decisions: list[bool] = []
    for t in range(1, rounds + 1):
        score, error = ask(t - 1, decisions, None)
        c = int((~abstains(thresholds, score)).sum())
        K = 40 + np.sqrt(t) / 5
        s = max(0.0, 1 - y / K) ** 2
        if k >= 0:
            s = max(s, 0.1)
        answered = bool(s > 0 and n[: c + 1].sum() / n.sum() > 1 - s)
        decisions.append(answered)
        if answered:
            h, A = 0, A + 1
            aim = alpha - min(max(0.0, R) / A / 2, alpha / 4)
            y, S, R = max(0.0, y + error - aim), max(0.0, S + error - alpha), R + error - alpha
            if error > alpha:
                k = -1
            elif k >= 0:
                k += 1
                y = min(y, max(K * (1 - min(1.0, alpha * k / 2) ** 2), S - K))
        else:
            h += 1
            if h >= 256 and S <= K + 3:
                h = k = 0
        n *= 8191 / 8192
        n[c] += 1
    return np.array(decisions), np.array(decisions, float)


def play_aci_rank(thresholds, ask, uniforms, alpha):
    """``aci-rank``: the share s that is answered, and counts n of recent scores, by how many thresholds answer."""
    H, s = len(thresholds), 0.5
    n = np.full(H, 0.25)
    n[0] = 0.0
    decisions: list[bool] = []
    probabilities: list[float] = []
    for t in range(len(uniforms)):
        score, error = ask(t, decisions, None)
        c = int((~abstains(thresholds, score)).sum())
        high, width = n[: c + 1].sum() / n.sum(), n[c] / n.sum()
        P = 0.0
        if s > 0:
            P = float(np.clip((high - (1 - s)) / width, 0, 1)) if width > 0 else float(high > 1 - s)
        answered = bool(uniforms[t] < P)
        decisions.append(answered)
        probabilities.append(P)
        if answered:
            s = min(1.0, max(0.0, s + 0.01 * (alpha - error)))
        n *= 511 / 512
        n[c] += 1
    return np.array(decisions), np.array(probabilities)


def play_refit(thresholds, ask, rounds, alpha):
    """``refit``: every 256 rounds the lowest threshold whose last 2,000 labels were wrong in a share of alpha."""
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
    """P(Bin(n, p) <= most)."""
    k = np.arange(n)
    log_choose = np.concatenate([[0.0], np.cumsum(np.log(n - k) - np.log(k + 1))])
    k = np.arange(n + 1)
    return np.exp(log_choose + k * np.log(p) + (n - k) * np.log(1 - p))[: int(most) + 1].sum()


def hoeffding_bentkus(n, wrong, alpha, rated):
    """The p-value of a mean error above alpha, from n errors of the sum ``wrong``, which are ratings or 0 and 1."""
    if n == 0:
        return 1.0
    p = min(wrong / n, alpha)
    unlikely = sum(x * np.log(x / y) for x, y in ((p, alpha), (1 - p, 1 - alpha)) if x > 0)
    return min(np.exp(-n * unlikely), (np.e if rated else 1.0) * binomial(np.ceil(wrong - 1e-9), n, alpha))


def holm(p, delta):
    """The hypotheses that Holm's procedure rejects."""
    rejected: list[int] = []
    for place, k in enumerate(np.argsort(p, kind="stable")):
        if p[k] > delta / (len(p) - place):
            break
        rejected.append(int(k))
    return rejected


def play_learn_then_test(thresholds, ask, rounds, alpha, n=1024, delta=0.05):
    """Answer n rounds; then the lowest threshold, of all but the last, that is certified at 1 - delta."""
    H = len(thresholds)
    seen: list[tuple] = []  # which thresholds answered, and the error
    decisions: list[bool] = []
    held = 0
    for t in range(rounds):
        score, error = ask(t, decisions, None)
        idk = abstains(thresholds, score)
        if t == n:
            answers, errors = (np.array(x, float) for x in zip(*seen, strict=True))
            rated = not np.isin(errors, [0, 1]).all()
            each = zip(answers.sum(axis=0)[:-1], (errors @ answers)[:-1], strict=True)
            held = min(holm([hoeffding_bentkus(int(m), w, alpha, rated) for m, w in each], delta), default=H - 1)
        decisions.append(not idk[held])
        if t < n:
            seen.append((~idk, error))
    return np.array(decisions), np.array(decisions, float)


def play_log_price(thresholds, ask, uniforms, alpha):
    """``log-price``, as ``play_against``, with weights and price in logarithms; rates are held over 256 rounds."""
    H = len(thresholds)
    log_w = np.zeros(H)
    y_1 = y = np.log(1 / alpha)
    R = D = 0.0
    decisions: list[bool] = []
    probabilities: list[float] = []
    for t in range(1, len(uniforms) + 1):
        p = normalise(log_w)
        score, error = ask(t - 1, decisions, p)
        idk = abstains(thresholds, score)
        eta = 3 * np.sqrt(np.log(H) / (256 * np.ceil(t / 256)))
        sigma = min(3e-6, 1 / t)
        s = np.exp(y) / (1 + np.exp(y))
        r = 1 - s + alpha * s
        P = p[~idk].sum()
        shut = R + 1 - alpha > 5 + 2 * np.sqrt(t)
        answered = not shut and bool(uniforms[t - 1] < P)
        decisions.append(answered)
        probabilities.append(0.0 if shut else P)
        if not shut:
            log_w[idk] -= eta * r
            if answered:
                log_w[~idk] -= min(eta * s * error / P, 10)
                R += error - alpha
                y = max(0.0, y + 0.05 * (error - alpha))
                D = max(0.0, D + error - min(3 * alpha, (1 + alpha) / 2))
                if D > 10 and y < y_1:
                    D, y = 0.0, y_1
                    log_w[-1] = np.logaddexp(log_w[-1], np.logaddexp.reduce(log_w))
            share = 0.99 * sigma / (1 - 0.99 * sigma)
            log_w[-1] = np.logaddexp(log_w[-1], np.log(share) + np.logaddexp.reduce(log_w))
        if t % 256 == 0:
            even = 256 * 0.01 * sigma / (1 - 256 * 0.01 * sigma)
            log_w = np.logaddexp(log_w, np.log(even / H) + np.logaddexp.reduce(log_w))
    return np.array(decisions), np.array(probabilities)


def fixed_losses(thresholds, scores, errors, alpha, lam):
    """Cumulative loss of every fixed arm."""
    return sum(compute_loss(abstains(thresholds, f), e, alpha, lam) for f, e in zip(scores, errors, strict=True))


def metrics(decisions, thresholds, scores, errors, alpha, lam):
    """FDR (eq. 2), inefficiency, FDR risk (eq. 1), cumulative loss, best arm's loss, best arm, regret."""
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
    """Least losses [cells, B] and their arms (eq. 3), the lowest on a tie, from rounds and errors by cut."""
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
