"""
Dependence without correlation
==============================

Points around a circle: the mean of y does not depend on x, but its distribution does. A test of
independence detects this. A conditional test shows that the angle explains all of it.
"""

import matplotlib.pyplot as plt
import numpy as np

import kernelbayes as kb

rng = np.random.default_rng(0)
angle = rng.uniform(0.0, 2.0 * np.pi, 200)
x = np.cos(angle) + 0.15 * rng.normal(size=200)
y = np.sin(angle) + 0.15 * rng.normal(size=200)

# %%
# The correlation is near zero, but HSIC is not. The aggregated test uses many kernels.
print("correlation", np.corrcoef(x, y)[0, 1].round(2))
dependent = kb.hsic_test(x, y, rng=0)
print(dependent)
print("aggregated: p =", kb.hsic_aggregated(x, y, rng=0).pvalue)

# %%
# Given the angle, x and y are independent.
around = np.column_stack([np.cos(angle), np.sin(angle)])
print("given the angle: p =", round(kb.ci_test(x, y, around, rng=0).pvalue, 2))

# %%
# The joint distribution has more mass than the product of its marginals where points are blue.
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
dependent.plot(ax=axes[0])
dependent.plot("witness", ax=axes[1])
