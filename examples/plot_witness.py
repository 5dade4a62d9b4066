"""
Where do two samples differ?
============================

Two samples have the same mean and variance, one from a normal and one from a Laplace distribution.
Their mean embeddings differ. The difference, the *witness function*, is positive where the first
sample has more mass and negative where the second has.
"""

import numpy as np

import kernelbayes as kb
from kernelbayes.plot import plot_witness

rng = np.random.default_rng(0)
normal = rng.normal(size=1000)
laplace = rng.laplace(scale=np.sqrt(0.5), size=1000)  # variance 1

# %%
# A narrow kernel detects fine differences: half the median distance.
kernel = kb.Gaussian.median(normal, scale=0.5)
mu, nu = kb.embed(normal, kernel), kb.embed(laplace, kernel)

# %%
# Their distance is the MMD. For comparison, the MMD between two halves of one sample.
halves = kb.embed(normal[:500], kernel), kb.embed(normal[500:], kernel)
print(f"normal against Laplace    {kb.mmd(mu, nu):.3f}")
print(f"two halves of the normal  {kb.mmd(*halves):.3f}")

# %%
# The Laplace sample has more mass in the middle and in the tails, the normal one in between.
ax = plot_witness(mu, nu, labels=("normal", "Laplace"))
