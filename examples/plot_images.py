"""
Images: where is the square?
============================

Observations may be images. ``SpatialPyramid`` compares histograms of patches of decreasing size.
Learned features (``NeuralFeatures``, with torch) are more accurate on complex images.
"""

import matplotlib.pyplot as plt
import numpy as np

import kernelbayes as kb

rng = np.random.default_rng(0)


def draw(places):
    """Noisy images (n, 16, 16) of a square around each place."""
    rows, columns = np.mgrid[:16, :16]
    inside = (np.abs(rows - places[:, 1, None, None]) < 3) & (
        np.abs(columns - places[:, 0, None, None]) < 3
    )
    return np.clip(0.7 * inside + 0.15 + 0.1 * rng.normal(size=inside.shape), 0.0, 1.0)


places = rng.uniform(3.0, 12.0, size=(300, 2))
images = draw(places)

# %%
# The rule learns the place from labelled images.
rule = kb.KernelBayesRule(kernel_x=kb.SpatialPyramid(levels=3)).fit(images, places)
asked = rng.uniform(3.0, 12.0, size=(100, 2))
pictures = draw(asked)
found = rule.predict(pictures)
print("mean error in pixels", np.hypot(*(found - asked).T).mean().round(2))
print("of the mean place", np.hypot(*(places.mean(0) - asked).T).mean().round(2))

# %%
# One image, the true place (star) and the posterior (contours).
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.imshow(pictures[0], cmap="gray", vmin=0.0, vmax=1.0)
left.plot(*asked[0], "*", color="#D55E00", ms=14)
rule.posterior(pictures[0]).plot(ax=right)
right.plot(*asked[0], "*", color="#D55E00", ms=14)
right.set(xlim=(0, 15), ylim=(15, 0), title="posterior of the place", xlabel="column", ylabel="row")
