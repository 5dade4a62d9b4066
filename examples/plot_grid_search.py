"""
Grid search, and ``tune``
=========================

``KernelBayesRule`` is a scikit-learn estimator, so a grid search works on the bandwidths of its
kernels. ``tune`` uses closed-form leave-one-out errors and needs no grid.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV

import kernelbayes as kb

rng = np.random.default_rng(0)
X = rng.uniform(-3.0, 3.0, size=(200, 1))
y = np.sin(2.0 * X[:, 0]) + (0.1 + 0.1 * np.abs(X[:, 0])) * rng.normal(size=200)

# %%
# Every setting of a kernel is a parameter: ``kernel_x__bandwidth``.
grid = {"kernel_x__bandwidth": [0.3, 0.6, 1.0, 3.0], "ridge": [1e-4, 1e-2]}
search = GridSearchCV(kb.KernelBayesRule(kernel_x=kb.Gaussian(1.0)), grid, cv=4).fit(X, y)
print(search.best_params_, round(search.best_score_, 3))

# %%
# The same choice by ``tune``, with the table of settings that were tried.
tuned = kb.tune(kb.KernelBayesRule(), X, y, rng=0, budget=10)
print(tuned.tuning_)

# %%
# Kernels smooth, so uncalibrated intervals are too wide. Left-out pairs show by how much.
calibration = kb.calibrate(tuned)
print(calibration)
at = np.linspace(-3.0, 3.0, 200)[:, None]
low, high = calibration.interval(tuned.posterior(at), 0.9)[:, 0].T
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.fill_between(at[:, 0], low, high, color="#0072B2", alpha=0.2, lw=0, label="90 % interval")
ax.plot(X[:, 0], y, ".", color="0.4", ms=4)
ax.plot(at[:, 0], tuned.predict(at), color="#0072B2", label="tuned")
ax.plot(at[:, 0], search.predict(at), "--", color="#D55E00", label="grid search")
ax.set(xlabel="x", ylabel="y")
ax.legend(frameon=False)
