"""The mathematics of online conformal abstention: arrays in, arrays out, one equation a function.

Letters are the paper's: H arms, T rounds, C rounds of a block, B copies (learners played side by side),
``tau`` a threshold, ``e`` the feedback (1 = wrong), ``P`` the mass of the arms that answer, ``Q`` of the rest.
"""
