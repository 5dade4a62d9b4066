"""Localisation in a corridor with two doors alike: both places must keep their mass.

python experiments/doors/run.py   prints the table of the README
"""

import numpy as np

import kernelbayes as kb

LENGTH, STEP, NOISE = 10.0, 1.0, 0.3
DOORS = (2.0, 7.0)  # half a round apart: nothing that is seen tells one from the other
SEEN = ("wall", "door", "wall", "wall")
GRID = 500


def circular(a, b):
    """Distance of places round the corridor."""
    return np.abs((a - b + LENGTH / 2) % LENGTH - LENGTH / 2)


def door_probability(z):
    """Probability that the sensor reports a door at a place."""
    near = np.min([circular(z, door) for door in DOORS], axis=0)
    return 0.05 + 0.85 * np.exp(-0.5 * (near / 0.5) ** 2)


def pairs(n, rng):
    """Pairs of steps, and of places with what is seen there, from a uniform start."""
    z = rng.uniform(0, LENGTH, n)
    after = (z + STEP + NOISE * rng.normal(size=n)) % LENGTH
    seen = np.where(rng.random(n) < door_probability(z), "door", "wall")
    return {"step": (z, after), "seen": (z, seen)}


def exact(seen):
    """Smoothed beliefs (T, GRID) on a grid, by the forward-backward algorithm."""
    z = (np.arange(GRID) + 0.5) * LENGTH / GRID
    P = np.zeros((GRID, GRID))
    for turn in (-1, 0, 1):
        P += np.exp(-0.5 * ((z[None] + turn * LENGTH - z[:, None] - STEP) / NOISE) ** 2)
    P /= P.sum(axis=1, keepdims=True)
    door = door_probability(z)
    L = np.array([door if s == "door" else 1.0 - door for s in seen])
    forward = [L[0]]
    for row in L[1:]:
        forward.append(row * (forward[-1] @ P))
    backward = [np.ones(GRID)]
    for row in L[:0:-1]:
        backward.append(P @ (row * backward[-1]))
    beliefs = np.array(forward) * np.array(backward[::-1])
    return z, beliefs / beliefs.sum(axis=1, keepdims=True)


def binned(z, weights, bins=20):
    """Shares (bins,) of the corridor."""
    return np.histogram(z, bins, (0.0, LENGTH), weights=weights)[0]


def main():
    """Print the table."""
    nodes = list(range(len(SEEN)))
    templates = {
        "step": [(t, t + 1) for t in nodes[:-1]],
        "seen": [(t, ("seen", t)) for t in nodes],
    }
    z, beliefs = exact(SEEN)
    expected = np.array([binned(z, row) for row in beliefs])
    print("pairs  largest share of one half  distance to the grid (total variation)")
    for n in (200, 1000, 4000):
        shares, distances = [], []
        for seed in range(5):
            rng = np.random.default_rng([seed, n])
            model = kb.KernelBeliefPropagation(
                templates=templates, kernels={0: kb.Periodic(0.5, LENGTH)}
            ).fit(pairs(n, rng))
            answer = model.query(nodes, {("seen", t): s for t, s in enumerate(SEEN)})
            batch = answer.stacked(nodes)
            places = batch.points[:, 0]
            found = np.array([binned(places, row) for row in batch.weights])
            first = found[:, :10].sum(axis=1)
            shares.append(np.maximum(first, 1.0 - first).max())
            distances.append(0.5 * np.abs(found - expected).sum(axis=1).mean())
        print(
            f"{n:5d}  {np.mean(shares):.2f} ({max(shares):.2f} at worst)  {np.mean(distances):.3f}"
        )
    first = expected[:, :10].sum(axis=1)
    print("grid: largest share of one half", np.maximum(first, 1.0 - first).max().round(3))


if __name__ == "__main__":
    main()
