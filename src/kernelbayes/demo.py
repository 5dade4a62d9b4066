"""The story that ``kernelbayes demo`` tells, as lines of text and a picture.

Two groups of people press a button when a light comes on. Their reaction times have the same mean
and the same variance, and yet one group responds in one way and the other in two. Means and
variances cannot see that; embeddings can, and the witness function says where.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kernelbayes.arrays import Rng, as_generator
from kernelbayes.discrepancy import mmd
from kernelbayes.embedding import Embedding, embed
from kernelbayes.kernels import Gaussian
from kernelbayes.plotting import new_axes, plot_witness

PEOPLE = 400
HALVINGS = 200
MEAN, DEVIATION = 500.0, 100.0  # milliseconds, of both samples


def demo(out: Path, seed: int = 0) -> Iterator[str]:
    """Tell the story: lines to print, and ``witness.png`` written into ``out``.

    Parameters
    ----------
    out : Path
        Directory for the picture, made if it does not exist (only when there is a picture).
    seed : int
        Seed of the two samples.

    Yields
    ------
    str
        Lines of text. Without matplotlib the last one says how to get the picture.
    """
    rng = as_generator(seed)
    a, b = reaction_times(rng)
    kernel = Gaussian.median(np.concatenate([a, b]), scale=0.5)
    mu, nu = embed(a, kernel), embed(b, kernel)

    yield f"Reaction times of two groups, {PEOPLE} people each (simulated, seed {seed})."
    yield "Both are made to have the same mean and the same variance, but not the same shape."
    yield ""
    yield from table(a, b, mu, nu, rng)
    yield ""
    yield f"chance: median over {HALVINGS} random halvings of group A, where nothing differs."
    grid = np.linspace(min(a.min(), b.min()), max(a.max(), b.max()), 400)
    witness = (mu - nu)(grid)
    yield "The witness function mu_A - mu_B says where they differ:"
    yield f"group A has most in excess near {grid[witness.argmax()]:.0f} ms,"
    yield f"group B has most in excess near {grid[witness.argmin()]:.0f} ms."
    yield ""
    yield picture(out / "witness.png", mu, nu)


def reaction_times(rng: Rng) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Two samples in milliseconds: one skewed hump, and an even mixture of fast and slow.

    Each is shifted and scaled so that its mean and variance are MEAN and DEVIATION squared.
    """
    rng = as_generator(rng)
    hump = rng.gamma(4.0, size=PEOPLE)
    mixture = rng.choice([-2.0, 2.0], size=PEOPLE) + rng.normal(size=PEOPLE)
    a, b = (MEAN + DEVIATION * (s - s.mean()) / s.std() for s in (hump, mixture))
    return a, b


def table(
    a: np.ndarray[Any, Any],
    b: np.ndarray[Any, Any],
    mu: Embedding,
    nu: Embedding,
    rng: np.random.Generator,
) -> Iterator[str]:
    """Aligned rows: each statistic between the groups, and between random halves of group A."""
    half = np.repeat([2.0, -2.0], PEOPLE // 2) / PEOPLE
    halvings = rng.permuted(np.tile(half, (HALVINGS, 1)), axis=1)  # signed weights, (m, n)
    first, second = (
        a[np.nonzero(side)[1]].reshape(HALVINGS, -1) for side in (halvings > 0, halvings < 0)
    )
    rows = [
        ("difference of means", "ms", 2, abs(a.mean() - b.mean()), first.mean(1) - second.mean(1)),
        ("difference of variances", "ms²", 1, abs(a.var() - b.var()), first.var(1) - second.var(1)),
        # mu_1 - mu_2 of every halving at once: a batch of embeddings over common points.
        ("MMD", "", 4, float(mmd(mu, nu)), embed(a, mu.kernel, weights=halvings).norm()),
    ]
    yield f"{'':<25}{'A against B':>15}{'chance':>12}{'ratio':>8}"
    for name, unit, digits, found, differences in rows:
        chance = float(np.median(np.abs(differences)))
        yield (
            f"{name:<25}{found:>11.{digits}f} {unit:<3}{chance:>12.{digits}f}{found / chance:>8.1f}"
        )


def picture(path: Path, mu: Embedding, nu: Embedding) -> str:
    """Draw the witness function into a file; the line to print about it."""
    try:
        ax = new_axes()
    except ImportError as error:
        return f"No picture: {error}"
    plot_witness(mu, nu, ax=ax, labels=("group A", "group B"))
    ax.set_xlabel("reaction time (ms)")
    ax.set_title("Same mean, same variance, different distributions")
    path.parent.mkdir(parents=True, exist_ok=True)
    ax.figure.savefig(path, dpi=150)
    return f"Picture: {path}"
