"""
Numbers and categories in one table
===================================

Columns of different kinds and units need no preparation: each gets a kernel of its own, and a
prediction is a whole distribution.
"""

import matplotlib.pyplot as plt
import numpy as np

import kernelbayes as kb

rng = np.random.default_rng(0)
n = 400
table = {
    "area": rng.uniform(20.0, 150.0, n),
    "year": rng.integers(1900, 2020, n),
    "city": rng.choice(["Oslo", "Rome", "Wien"], n),
}
level = np.array([18.0, 12.0, 15.0])[np.unique(table["city"], return_inverse=True)[1]]
rent = 200 + level * table["area"] * rng.choice([0.7, 1.0], n) + 40 * rng.normal(size=n)

# %%
# A mapping or a data frame; the kernel is a product over its columns.
rule = kb.KernelBayesRule().fit(table, rent)
print(rule.kernel_x_)

# %%
# One flat, given by name. Some flats are subsidised: the posterior has two peaks, which no mean
# with an error bar would tell.
flat = {"area": 90.0, "year": 1960, "city": "Oslo"}
posterior = rule.posterior(flat)
print(posterior.summary())
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
posterior.plot(ax=left)
left.set_title("rent of one flat")

# %%
# The other way round: which city, given area and rent?
city = kb.KernelBayesRule().fit({"area": table["area"], "rent": rent}, table["city"])
city.posterior({"area": 90.0, "rent": 1800.0}).plot(ax=right)
right.set_title("where a rent of 1800 is paid")
print(kb.calibrate(city))
