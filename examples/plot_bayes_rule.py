"""
Bayes' rule from pairs, under two priors
========================================

A sensor measures a saturating function of the hidden z, with noise. We have 400 calibration pairs.
Kernel Bayes' rule turns a reading into a posterior. The prior is a separate input, so the same
pairs can be used with a different prior.
"""

import matplotlib.pyplot as plt
import numpy as np

import kernelbayes as kb

rng = np.random.default_rng(0)
z = rng.uniform(-3, 3, size=400)  # hidden, uniform in the calibration data
x = np.tanh(z) + 0.15 * rng.normal(size=400)  # observed
prior = rng.normal(1.5, 0.5, size=400)  # today z is known to be near 1.5

# %%
# Fit once. The prior can be changed on the fitted model, which reuses its factorisations.
rule = kb.KernelBayesRule().fit(x, z)
today = rule.with_prior(prior)

# %%
# A reading of 0.9 is on the flat part of the curve. Under the uniform prior of the calibration data
# z could be anything above 1; under today's prior it is close to 1.5.
grid = np.linspace(-3, 3, 300)[:, None]
smooth = kb.Gaussian(0.15)
fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for model, label in ((rule, "calibration prior"), (today, "today's prior")):
    posterior = model.posterior(0.9, kernel=smooth).normalized()
    ax.plot(grid, posterior(grid) / (0.15 * np.sqrt(2 * np.pi)), label=label)
    print(f"{label:18s} mean {posterior.weights @ z:.2f}  mass {posterior.mass:.2f}")
ax.set(xlabel="z", ylabel="smoothed posterior density", title="z given a reading of 0.9")
ax.legend()
