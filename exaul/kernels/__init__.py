"""The mathematics of online conformal abstention, as functions of scalars and arrays.

Formulas use the letters of the paper, "Online Conformal Abstention Under Adversarial Bandit Feedback": H arms, T
rounds, ``tau`` a threshold, ``e`` the error of an answer (1 = wrong), ``P`` the probability of the arms that
answer, ``Q`` that of the arms that abstain. Equation numbers are those of the paper's main text.

Letters in shapes: B copies; K blocks of C rounds; P checkpoints, at most S in a block (but P pools in
``records.py``, P stored answers in ``delayed.py``); R streams of records (but R rows in ``rows.py``) and U streams
of uniforms, which copies read; N records or rounds; M numbers of a rule's state; L copies of a tile.
"""
