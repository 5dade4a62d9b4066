"""
Online filtering and forecasting
================================

A filter takes one step per observation. The state after a step is plain data that can be stored and
forecast from. Missing observations are ``None``.
"""

import matplotlib.pyplot as plt
import numpy as np

import kernelbayes as kb

rng = np.random.default_rng(0)
angle = np.cumsum(0.25 + 0.05 * rng.normal(size=420))
states = np.sin(angle)[:, None] + 0.3 * np.sin(2 * angle)[:, None]
phase = np.column_stack([states[:, 0], np.gradient(states[:, 0])])  # position and velocity
seen = phase + 0.2 * rng.normal(size=phase.shape)

model = kb.KernelBayesFilter(rng=0).fit(seen[:360], phase[:360])

# %%
# The live loop. ``info.support`` says how close each observation is to the training sample. Five
# observations are missing.
state, means = model.start(), []
for t, x in enumerate(seen[360:400]):
    state, info = model.step(state, None if 20 <= t < 25 else x)
    means.append(state.belief.mean())
print("time", state.t, "support of the last observation", np.round(info.support, 2))

# %%
# A forecast of twenty steps from the live state, with 90 % bands.
ahead = model.forecast(state, 20)
low, high = ahead.interval(0.9)[:, 0].T
fig, ax = plt.subplots(figsize=(8, 3.5), layout="constrained")
ax.plot(phase[360:, 0], color="0.6", lw=3, label="truth")
ax.plot(np.array(means)[:, 0], color="#0072B2", label="filter, step by step")
ax.plot(np.arange(40, 60), ahead.mean()[:, 0], "--", color="#0072B2", label="forecast")
ax.fill_between(np.arange(40, 60), low, high, color="#0072B2", alpha=0.2, lw=0)
ax.axvspan(20, 24, color="#D55E00", alpha=0.15, lw=0, label="nothing seen")
ax.set(xlabel="step", ylabel="place")
ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=4, frameon=False)
