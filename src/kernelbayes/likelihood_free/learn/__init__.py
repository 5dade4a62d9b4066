"""Learning posteriors from simulations: learners, and the choice among their variants.

``task`` has the simulations in coordinates and the learners without a likelihood, ``adjust`` the
regression from data to parameters, ``likelihood`` the one from parameters to data, ``importance``
the posteriors of a learned likelihood, ``judge`` their scores, ``choice`` the contest.
"""
