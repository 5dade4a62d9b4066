"""
Decoding a posterior: density, intervals, mixture
=================================================

The hidden z has two branches for every reading x. The posterior is a weighted sample with some
negative weights. Decoding turns it into probabilities, intervals and densities.
"""

import matplotlib.pyplot as plt
import numpy as np

import kernelbayes as kb
from kernelbayes.select.calibration import calibrate

rng = np.random.default_rng(0)
x = rng.normal(size=800)
z = rng.choice([-1.0, 1.0], size=800) * (1.5 + np.tanh(x)) + 0.3 * rng.normal(size=800)
cme = kb.ConditionalEmbedding().fit(x, z)
posterior = cme(1.0)  # the true branches are at -2.26 and 2.26
print(posterior, f"negative weight {posterior.negative:.0%}")

# %%
# Probabilities and intervals need a proper distribution; ``valid`` says how negative weights are
# handled. Clipping leaves too much mass in the tails.
for valid in ("rearranged", "projected", "clipped"):
    print(f"{valid:11s} 90 % interval", posterior.interval(0.9, valid=valid)[0].round(2))
print("recalibrated 90 % interval", calibrate(cme).interval(posterior, 0.9)[0].round(2))
print("probability of the upper branch", posterior.prob((0.0, np.inf)).round(2))

# %%
# The closest mixture of two normal distributions in RKHS distance summarises it. The kernel of the
# fit should be about as narrow as the components. Silverman's bandwidth is too wide for two narrow
# peaks, so we set the bandwidth of the density.
narrow = kb.embed(z, kb.Gaussian(0.5), posterior.weights)
mixture = narrow.mixture(2, rng=0)
print("weights", mixture.weights.round(2), "means", mixture.means[:, 0].round(2))

grid = np.linspace(-4, 4, 400)
fig, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
axes[0].plot(grid, posterior.density(grid, bandwidth=0.2), label="density, bandwidth 0.2")
axes[0].plot(grid, mixture.density(grid), ls="--", label="mixture of two")
axes[0].set(xlabel="z", title="z given x = 1")
axes[0].legend(frameon=False)
# The plot of a batch: median and 90 % interval of 40 posteriors.
cme(np.linspace(-2, 2, 40)[:, None]).plot(ax=axes[1])
