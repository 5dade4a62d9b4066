"""
A posterior from a simulator
============================

An outbreak is simulated person by person, so there is no likelihood. From one observed outbreak we
infer how contagious the disease is and how fast people recover.
"""

import numpy as np
from scipy import stats

import kernelbayes as kb


def outbreak(theta, rng, people=200, days=40):
    """Peak number of cases, its day, and the total number of cases, for a batch (b, 2)."""
    contacts, recovery = theta[:, 0], theta[:, 1]
    ill, well = np.full(len(theta), 5), np.full(len(theta), people - 5)
    history = [ill]
    for _ in range(days):
        new = rng.binomial(well, 1.0 - np.exp(-contacts * ill / people))
        ill, well = ill + new - rng.binomial(ill, recovery), well - new
        history.append(ill)
    curve = np.array(history)
    return np.column_stack([curve.max(axis=0), curve.argmax(axis=0), people - well])


prior = {"contacts": stats.uniform(0.1, 0.9), "recovery": stats.uniform(0.05, 0.4)}
truth = np.array([0.5, 0.2])
observed = outbreak(truth[None], np.random.default_rng(0))[0]
print("peak, its day, total:", observed)

# %%
# A thousand simulations give a model for any observed outbreak.
runs = kb.simulate(outbreak, prior, 1000, rng=1)
model = kb.LikelihoodFree(prior, "adjusted", rng=0).fit(runs.theta, runs.x)
posterior = model.posterior(observed)
print(posterior)
print("90 % intervals:", posterior.interval(0.9).round(2).tolist())

# %%
# Do these parameters reproduce the outbreak?
print(kb.posterior_predictive(posterior, outbreak, observed, rng=2).verdict)

# %%
# The posterior, the prior and the true parameters.
posterior.plot(truth=truth)
