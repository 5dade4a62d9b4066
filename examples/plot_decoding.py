"""
Decoding a posterior: density, intervals, mixture
=================================================

The hidden z has two possible branches for every reading x. The posterior given a reading is a
weighted sample, some of its weights negative; decoding turns it into answers.
"""

import matplotlib.pyplot as plt
import numpy as np

import kernelbayes as kb
from kernelbayes.select.calibration import calibrate

rng = np.random.default_rng(0)
x = rng.normal(size=800)
z = rng.choice([-1.0, 1.0], size=800) * (1.5 + np.tanh(x)) + 0.3 * rng.normal(size=800)
cme = kb.ConditionalEmbedding().fit(x, z)
posterior = cme(1.0)  # the truth: branches at -2.26 and 2.26
print(posterior, f"negative weight {posterior.negative:.0%}")

# %%
# Probabilities and intervals need weights that are a distribution; ``valid`` says how they become
# one. Clipping keeps mass in the tails that negative weights had taken away.
for valid in ("rearranged", "projected", "clipped"):
    print(f"{valid:11s} 90 % interval", posterior.interval(0.9, valid=valid)[0].round(2))
print("recalibrated 90 % interval", calibrate(cme).interval(posterior, 0.9)[0].round(2))
print("probability of the upper branch", posterior.prob((0.0, np.inf)).round(2))

# %%
# A mixture of two normal distributions, closest in RKHS distance, summarises it. The kernel of the
# fit should be about as narrow as what it should see. Silverman's bandwidth is too wide for two
# narrow peaks, so that the density gets one of its own.
narrow = kb.embed(z, kb.Gaussian(0.5), posterior.weights)
mixture = narrow.mixture(2, rng=0)
print("weights", mixture.weights.round(2), "means", mixture.means[:, 0].round(2))

grid = np.linspace(-4, 4, 400)
fig, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
axes[0].plot(grid, posterior.density(grid, bandwidth=0.2), label="density, bandwidth 0.2")
axes[0].plot(grid, mixture.density(grid), ls="--", label="mixture of two")
axes[0].set(xlabel="z", title="z given x = 1")
axes[0].legend(frameon=False)
# A batch draws itself: here the median and 90 % interval of 40 posteriors.
cme(np.linspace(-2, 2, 40)[:, None]).plot(ax=axes[1])
