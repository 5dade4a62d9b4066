"""Depth of patches: regression patch by patch, and four belief propagations on top of it.

What a patch shows is summed up by a kernel regression of its depth. All belief propagations see the
same regression, made for each scene without it, and learn from pairs what its values mean.
"""

from __future__ import annotations

import itertools
import time

import networks
import numpy as np
import propagation
from scenes import COLUMNS, ROWS, patch_features, scene
from sklearn.linear_model import RidgeCV

import kernelbayes as kb

PATCHES, RANK, PARTS = 300, 300, 4  # patches of a scene in the regression, its rank, its folds
ALPHAS = np.logspace(-6.0, 2.0, 9)
PAIRS = 2000  # in Gaussian mixtures, out of all
GRAIN = 0.02  # depths (log10) of the kernel model are rounded: fewer distinct points
ITERATIONS = 10  # CME13 5.1
STATES, PSEUDO = (25, 50), (1e-2, 1e-1, 1.0)
SCALES, RIDGE = (1.0, 0.5, 0.25), 1e-3  # of the median bandwidth; of all rows
PARTICLES, FEW, COMPONENTS = 10, 5, (2, 4)  # points of a node, iterations at most, components
NETWORK = networks.grid(ROWS, COLUMNS, by_row=True)
NODES = list(itertools.product(range(ROWS), range(COLUMNS)))


def mae(found, depth):
    """Mean absolute error of log10 depth."""
    return float(np.mean(np.abs(np.reshape(found, depth.shape) - depth)))


# --- patch by patch -------------------------------------------------------------------------------


def regression(scenes):
    """Kernel regression of depth on the features of a patch, learned from (picture, depth)."""
    X, y = [], []
    for number, (picture, depth) in enumerate(scenes):
        some = np.random.default_rng(number).permutation(depth.size)[:PATCHES]
        X.append(patch_features(picture)[some])
        y.append(depth.ravel()[some])
    X, y = np.concatenate(X), np.concatenate(y)
    centre, scale = X.mean(axis=0), X.std(axis=0)
    S = (X - centre) / scale
    kernel_x = kb.nystrom(kb.Gaussian.median(S), S, RANK, rng=0)
    model = RidgeCV(ALPHAS).fit(kernel_x.features(S), y)  # by leave-one-out
    return lambda picture: model.predict(
        kernel_x.features((patch_features(picture) - centre) / scale)
    )


def guesses(scenes):
    """Regressions (n, 107, 86) of the depth of each scene, without the scene's part of them."""
    found = [None] * len(scenes)
    for part in range(PARTS):
        model = regression([one for k, one in enumerate(scenes) if k % PARTS != part])
        for k in range(part, len(scenes), PARTS):
            found[k] = model(scenes[k][0]).reshape(ROWS, COLUMNS)
    return np.array(found)


def pairs_of(depth, guess):
    """Pairs of all templates: right of each row, down from each row, seen in each row."""
    right = [(depth[:, i, :-1].ravel(), depth[:, i, 1:].ravel()) for i in range(ROWS)]
    down = [(depth[:, i].ravel(), depth[:, i + 1].ravel()) for i in range(ROWS - 1)]
    seen = [(depth[:, i].ravel(), guess[:, i].ravel()) for i in range(ROWS)]
    return right, down, seen


# --- belief propagation: each is (depths, guesses, solved scenes) -> solver -----------------------


def kernel(depth, guess, solved):
    """Kernel belief propagation; bandwidths and iterations are chosen on solved scenes."""
    right, down, seen = pairs_of(_rounded(depth), _rounded(guess))
    templates = {
        **{("right", i): [((i, j), (i, j + 1)) for j in range(COLUMNS - 1)] for i in range(ROWS)},
        **{("down", i): [((i, j), (i + 1, j)) for j in range(COLUMNS)] for i in range(ROWS - 1)},
        **{("seen", i): [((i, j), ("seen", i, j)) for j in range(COLUMNS)] for i in range(ROWS)},
    }
    data = {("right", i): pair for i, pair in enumerate(right)}
    data |= {("down", i): pair for i, pair in enumerate(down)}
    data |= {("seen", i): pair for i, pair in enumerate(seen)}
    model = kb.KernelBeliefPropagation(
        templates=templates, ridge=RIDGE, scales="median", damping=0.0, max_iterations=ITERATIONS
    ).fit(data)

    depths, known = (np.moveaxis(np.array(part), 0, -1) for part in zip(*solved, strict=True))
    model.choose_stopping(
        {n: depths[n] for n in NODES}, {("seen", *n): known[n] for n in NODES}, scales=SCALES
    )

    def solve(guess):
        evidence = {("seen", *n): float(guess[n]) for n in NODES}
        beliefs, found = model.query(NODES, evidence), np.empty((ROWS, COLUMNS))
        for i in range(ROWS):
            row = beliefs.stacked(NODES[i * COLUMNS : (i + 1) * COLUMNS])
            found[i] = networks.median(row.points[:, 0], np.asarray(row.weights))
        return found

    return solve


def _rounded(values):
    return GRAIN * np.round(values / GRAIN)


def discrete(depth, guess, solved):
    """Discrete belief propagation; states, pseudo-counts and iterations are chosen."""

    def start(states, pseudo, new):
        centres, code = networks.binned(depth, states)
        edges = np.quantile(guess, np.linspace(0.0, 1.0, states + 1)[1:-1])
        seen, seen_new = np.searchsorted(edges, guess), np.searchsorted(edges, new)
        right, down, own = pairs_of(code, seen)
        q = len(centres)
        potentials = [networks.table(a, b, q, q, pseudo) for a, b in right + down]
        local = np.empty((ROWS, COLUMNS, q))
        for i, (a, b) in enumerate(own):
            likelihood = networks.table(a, b, q, states, pseudo)[:, seen_new[i]].T
            shares = np.bincount(a, minlength=q) + pseudo
            local[i] = np.log(likelihood) + np.log(shares / shares.sum())
        return propagation.discrete(NETWORK, centres, potentials, local.reshape(-1, q))

    return _chosen(start, itertools.product(STATES, PSEUDO), ITERATIONS, solved)


def particle(depth, guess, solved):
    """Particle belief propagation with Gaussian mixtures of pairs; iterations are chosen."""
    pairs, own = _mixtures(depth, guess)

    def start(step, new):
        log_local, x, q = _sampled(own, new)
        rng = np.random.default_rng(0)
        return propagation.particle(NETWORK, pairs, log_local, x, q, step, rng)

    return _chosen(start, [(0.1,)], FEW, solved)


def mixture(depth, guess, solved):
    """Belief propagation with mixtures of Gaussians; iterations are chosen."""
    pairs, own = _mixtures(depth, guess)

    def start(new):
        log_local, x, _ = _sampled(own, new)
        return propagation.mixture(NETWORK, pairs, log_local, x, np.random.default_rng(0))

    return _chosen(start, [()], FEW, solved)


def _mixtures(depth, guess):
    """Mixtures of neighbours by template, and of depth and regression by row.

    Their numbers of components are those that are best in a row in the middle.
    """
    found = []
    for group in pairs_of(depth, guess):
        some = np.random.default_rng(0).permutation(group[0][0].size)[:PAIRS]
        few = [tuple(values[some % len(values)] for values in pair) for pair in group]
        size = len(networks.PairMixture(*few[len(few) // 2], COMPONENTS).logs)
        found.append([networks.PairMixture(a, b, (size,)) for a, b in few])
    return found[0] + found[1], found[2]


def _sampled(own, guess):
    """Local potentials at points (N, K), points drawn from them, and their log densities."""

    def log_local(x):
        rows = x.reshape(ROWS, COLUMNS, -1)
        found = [one.log_joint(r, g[:, None]) for one, r, g in zip(own, rows, guess, strict=True)]
        return np.concatenate(found)

    rng, each = np.random.default_rng(1), []
    for one, g in zip(own, guess, strict=True):
        each.append(one.sample(np.repeat(g[:, None], PARTICLES, axis=1), 1, rng))
    x = np.concatenate(each)
    return log_local, x, log_local(x)


def _chosen(start, settings, most, solved):
    """Solver with the settings and iterations of the least error on the solved scenes."""
    best = (np.inf, None, 0)
    for setting in settings:
        errors = np.zeros(most)
        for depth, known in solved:
            steps = start(*setting, known)
            errors += [mae(networks.median(*next(steps)), depth) for _ in range(most)]
        k = int(np.argmin(errors))
        best = min(best, (errors[k], setting, k + 1), key=lambda found: found[0])

    def solve(guess):
        steps = start(*best[1], guess)
        for _ in range(best[2]):
            beliefs = next(steps)
        return networks.median(*beliefs).reshape(ROWS, COLUMNS)

    return solve


METHODS = {"kernel": kernel, "discrete": discrete, "particle": particle, "mixture": mixture}


def study(first, sizes, names=tuple(METHODS)):
    """Depths of new scenes by all methods, learned from some and chosen on others.

    ``sizes`` are the numbers of scenes to learn from, to choose on and to solve. Yields, for each
    of the last, its picture, its depth, and for each method (depth found, CPU seconds).
    """
    learned, chosen, new = (
        [scene(first + 1000 * part + k) for k in range(size)] for part, size in enumerate(sizes)
    )
    depths, seen, model = np.array([d for _, d in learned]), guesses(learned), regression(learned)

    def look(picture):
        return model(picture).reshape(ROWS, COLUMNS)

    solved = [(depth, look(picture)) for picture, depth in chosen]
    rows = np.broadcast_to(np.median(depths, axis=(0, 2))[:, None], (ROWS, COLUMNS))
    solvers = {name: METHODS[name](depths, seen, solved) for name in names}
    for picture, depth in new:
        guess, seconds = _timed(look, picture)
        found = {"regression": (guess, seconds), "constant": (rows, 0.0)}
        for name, solve in solvers.items():
            found[name] = _timed(solve, guess)
        yield picture, depth, found


def _timed(function, given):
    start = time.process_time()
    return function(given), time.process_time() - start
