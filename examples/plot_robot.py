"""
A robot localises itself
========================

A robot with a camera of a few pixels drives through a building in which two rooms look the same.
It learns from frames with known places. Then it is switched on in one of the two rooms. A single
frame cannot tell which one, but its path can: the belief has two modes until the robot sees the end
of the corridor. ``kernelbayes demo`` is the full version, with numbers and a film.
"""

import kernelbayes as kb
from kernelbayes.demo.building import walls
from kernelbayes.demo.drive import Drive
from kernelbayes.demo.story import place_density
from kernelbayes.plot.canvas import subplots
from kernelbayes.plot.demo import draw_plan

labelled, seen = Drive.simulated(600, rng=0), Drive.simulated(40, rng=1, room="a")
print("frames", labelled.X.shape, "and states (x, y, cos, sin)", labelled.Z.shape)

# %%
# Kernels must be narrow, much narrower than the distance between random frames or places. Here the
# bandwidths are given; ``kb.tune`` would choose them.
model = kb.KernelBayesFilter(
    kb.Gaussian.median(labelled.X, scale=0.25),
    kb.Gaussian.median(labelled.Z, scale=0.1),
    prior_ridge=1e-5,
    transition_ridge=1e-5,
    ridge=1.0,
    rng=0,
).fit(labelled.X, labelled.Z)
beliefs = model.filter(seen.X)
print(beliefs)

# %%
# The belief over the floor plan after the first frame and later; the star is the true place.
density = place_density(beliefs)
for ax, t in zip(subplots(1, 2, width=10.0, height=3.6), (0, 39), strict=True):
    draw_plan(ax, walls())
    ax.imshow(density[t], extent=(0, 12, 0, 8), origin="lower", cmap="Blues")
    ax.plot(*seen.states[t, :2], "*", color="black", ms=12)
    ax.set_title(f"frame {t + 1}")
