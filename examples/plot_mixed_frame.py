"""
Numbers and categories in one table
===================================

Columns of different types and units need no preparation: each gets its own kernel. A prediction is
a whole distribution.
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
# The data are a mapping or a data frame. The kernel is a product over its columns.
rule = kb.KernelBayesRule().fit(table, rent)
print(rule.kernel_x_)

# %%
# One flat, by column name. Some flats are subsidised, so the posterior has two modes, which a mean
# with an error bar would hide.
flat = {"area": 90.0, "year": 1960, "city": "Oslo"}
posterior = rule.posterior(flat)
print(posterior.summary())
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
posterior.plot(ax=left)
left.set_title("rent of one flat")

# %%
# The reverse question: which city, given area and rent?
city = kb.KernelBayesRule().fit({"area": table["area"], "rent": rent}, table["city"])
city.posterior({"area": 90.0, "rent": 1800.0}).plot(ax=right)
right.set_title("city, given a rent of 1800")
print(kb.calibrate(city))
