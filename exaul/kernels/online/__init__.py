"""One copy, one round at a time, as a program uses a learner: ``one.py`` calls the loops of ``rounds.py``, O(H)."""
