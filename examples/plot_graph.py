"""
Belief propagation: a message, and imputing a table
===================================================

Four columns of a table depend on each other, one of them a category, and a fifth of all cells is
missing. A tree learned from the observed pairs imputes every missing cell, with intervals.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import kernelbayes as kb

rng = np.random.default_rng(0)
age = rng.uniform(20, 65, 300)
job = np.where(rng.random(300) < (age - 20) / 60, "manager", "clerk").astype(object)
income = 20 + 0.4 * age + 25 * (job == "manager") + 4 * rng.normal(size=300)
rent = 5 + 0.3 * income + 2 * rng.normal(size=300)
whole = {"age": age, "job": job, "income": income, "rent": rent}
missing = {name: rng.random(300) < 0.2 for name in whole}
table = {name: np.where(missing[name], None, column) for name, column in whole.items()}

# %%
# The tree connects the columns with the strongest dependence. An edge uses the rows where both of
# its columns are observed.
model = kb.KernelBeliefPropagation("tree").fit(table)
print(model.graph_.edges)

# %%
# A message is a function of the values of the receiving node. Here it is the message from an
# observed rent of 25 to the income.
beliefs = model.query(evidence={"rent": 25.0})
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
message = beliefs.messages["rent", "income"]
left.plot(message.points[:, 0], message.values)
left.set(xlabel="income", ylabel="message", title="message from a rent of 25 to the income")
print({job: round(float(beliefs["job"].prob(lambda x, job=job: x == job)), 2) for job in set(job)})

# %%
# Impute all cells at once: each row is a case of evidence, with its observed cells.
# Isolated values, such as the largest income, say little: a warning gives the share of their
# evidence that the marginal replaces.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", kb.NumericalWarning)
    beliefs = model.query(evidence=table)
lost = np.flatnonzero(missing["income"])
filled = beliefs["income"][lost]
low, high = filled.interval(0.9)[:, 0].T
middle = filled.mean()[:, 0]
right.errorbar(
    income[lost],
    middle,
    yerr=[np.maximum(middle - low, 0), np.maximum(high - middle, 0)],
    fmt=".",
    alpha=0.7,
)
right.axline((50, 50), slope=1, color="black", linewidth=0.8)
right.set(xlabel="true income", ylabel="imputed, with 90 % intervals", title="missing incomes")
