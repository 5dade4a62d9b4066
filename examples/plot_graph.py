"""
Belief propagation: a message, and the holes of a table
=======================================================

Four columns of a table depend on each other, one of them a category, and a fifth of all cells is
missing. A tree learned from the pairs that are there fills every hole, with error bars.
"""

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
# The tree joins the columns that depend most on each other; an edge uses the rows with both ends.
model = kb.KernelBeliefPropagation("tree").fit(table)
print(model.graph_.edges)

# %%
# A message is what one node tells another, as a function of the other's values. A rent of 25 tells
# the income; the income, not observed, has both jobs to choose from.
beliefs = model.query(evidence={"rent": 25.0})
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
message = beliefs.messages["rent", "income"]
left.plot(message.points[:, 0], message.values)
left.set(xlabel="income", ylabel="message", title="what a rent of 25 says about the income")
print({job: round(float(beliefs["job"].prob(lambda x, job=job: x == job)), 2) for job in set(job)})

# %%
# All holes at once: each row is a case of evidence, with what is there in that row.
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
right.set(xlabel="true income", ylabel="filled, with 90 % intervals", title="missing incomes")
