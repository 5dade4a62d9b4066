"""
Bayes' rule from pairs, and the same pairs under another prior
==============================================================

A sensor reads a saturating function of what we want to know, with noise. All we have are 400
calibration pairs. Kernel Bayes' rule turns a reading into a posterior, and because the prior is an
ingredient of its own, the same pairs serve when tomorrow's prior is a different one.
"""

import matplotlib.pyplot as plt
import numpy as np

import kernelbayes as kb

rng = np.random.default_rng(0)
z = rng.uniform(-3, 3, size=400)  # hidden, spread out in the calibration
x = np.tanh(z) + 0.15 * rng.normal(size=400)  # observed
prior = rng.normal(1.5, 0.5, size=400)  # but today z is known to be near 1.5

# %%
# Fit once; the prior can be changed on the fitted model, which reuses what does not depend on it.
rule = kb.KernelBayesRule().fit(x, z)
today = rule.with_prior(prior)

# %%
# A reading of 0.9 is on the flat part of the curve: under the calibration's flat prior z could be
# anything above 1, under today's prior it is close to 1.5.
grid = np.linspace(-3, 3, 300)[:, None]
smooth = kb.Gaussian(0.15)
fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for model, label in ((rule, "calibration prior"), (today, "today's prior")):
    posterior = model.posterior(0.9, kernel=smooth).normalized()
    ax.plot(grid, posterior(grid) / (0.15 * np.sqrt(2 * np.pi)), label=label)
    print(f"{label:18s} mean {posterior.weights @ z:.2f}  mass {posterior.mass:.2f}")
ax.set(xlabel="z", ylabel="smoothed posterior density", title="z given a reading of 0.9")
ax.legend()
