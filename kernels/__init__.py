"""The mathematics of online conformal abstention: arrays in, arrays out, one equation a function.

Letters are the paper's: H arms, T rounds, C rounds of a block, B copies (learners that are played side by side), N
records, P checkpoints in shapes; ``tau`` a threshold, ``e`` the feedback (1 = wrong), ``P`` the probability of the
arms that answer and ``Q`` of those that abstain. "The paper" is "Online Conformal Abstention Under Adversarial
Bandit Feedback"; numbers of equations are those of its main text.
"""
