"""
Do two samples differ, and where?
=================================

Two samples in the plane with the same mean and the same covariance: one is Gaussian, the other
lies on a ring. The two-sample test says that they differ, the witness function says where.
"""

import matplotlib.pyplot as plt
import numpy as np

import kernelbayes as kb

rng = np.random.default_rng(0)
angle = rng.uniform(0.0, 2.0 * np.pi, size=200)
ring = np.sqrt(2.0) * np.column_stack([np.cos(angle), np.sin(angle)]) + 0.1 * rng.normal(
    size=(200, 2)
)
normal = rng.normal(size=(150, 2))

# %%
# Means and covariances say little; the embeddings do.
result = kb.mmd_test(ring, normal, rng=0)
print(result)
print("linear kernel, means only: p =", kb.mmd_test(ring, normal, kb.Linear(), rng=0).pvalue)

# %%
# The null distribution, and the points coloured by the witness function: blue where the ring has
# more mass, orange where the normal sample has.
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
result.plot(ax=axes[0])
result.plot("witness", ax=axes[1])
