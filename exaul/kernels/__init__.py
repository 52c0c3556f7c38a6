"""The mathematics of online conformal abstention: arrays in, arrays out, one equation a function.

Letters in formulas are the paper's: H arms, T rounds; ``tau`` a threshold, ``e`` the feedback (1 = wrong), ``P``
the probability of the arms that answer and ``Q`` of those that abstain. "The paper" is "Online Conformal Abstention
Under Adversarial Bandit Feedback"; numbers of equations are those of its main text.

Letters in shapes: B copies (learners that are played side by side), L of them the lanes of a tile; K blocks of C
rounds, at most S checkpoints in a block and P in all; R streams of records and U streams of uniforms, from which
copies read; N records or rounds; M numbers of a rule's memory. A docstring may define a letter for itself.
"""
