r"""Decoding: from a weighted sample to answers. Every question is a method here, in one list.

Weights may be negative and need not sum to one. There are two kinds of questions:

* **Linear ones** (``expect``, ``mean``, ``moment``) are answered with the weights as they are:
  ``E[f] = sum_i w_i f(x_i)``, the estimate of the papers. Divide by the mass first, with
  ``normalized()``, if you want a probability. Means of what a rule made are taken around the
  prior's mean, see ``mean``.
* **Questions about a distribution** (``prob``, ``cdf``, ``quantile``, ``interval``, ``density``,
  ``mode``) need weights that are not negative and sum to one. The option ``valid`` says how they
  are made so; :mod:`kernelbayes.embedding.regions` has the choices and the default.

A batch adds a leading axis to every answer.
"""

from collections.abc import Callable, Sequence
from typing import Any

from kernelbayes.embedding import density, export, regions
from kernelbayes.embedding.density import Bandwidth, Height, Method
from kernelbayes.embedding.gaussian import Covariance, Mixture, mixture
from kernelbayes.embedding.mean import Kind, MeanElement, Validity, Weighted, validity
from kernelbayes.tables import Table
from kernelbayes.types import Array, Floats, Points, PointsLike, Rng


class Decoding(Weighted):
    """What can be read off an embedding (weights (n,)) or a batch (weights (m, n))."""

    # --- linear questions -------------------------------------------------------------------------

    def expect(self, f: Callable[[Points], Array] | Array) -> Array:
        r"""Return the estimate of E[f], shape (...) for values (n, ...).

        .. math:: \hat{E}[f] = \sum_i w_i f(x_i)

        f is a vectorised function of the points, in the RKHS or not (KMCF16 chapter 5), or its
        values at the points. An embedding is an RKHS function: the answer is then the inner product
        with it, and :meth:`expect_bound` says how wrong it can be.

        Examples
        --------
        >>> from kernelbayes import Gaussian, embed
        >>> embed([1.0, 2.0, 6.0], Gaussian(1.0)).expect(lambda x: x[:, 0] > 1.5).round(3)
        np.float64(0.667)
        """
        return regions.expect(self.points, self.weights, f)

    def expect_bound(self, f: MeanElement, other: MeanElement | float | Array) -> Array:
        r"""Bound on the difference of expectations of an RKHS function f under two embeddings.

        .. math:: |E_\mu[f] - E_\nu[f]| = |\langle f, \mu - \nu \rangle| \le |f| \, |\mu - \nu|

        f is an RKHS function: ``embed(points, kernel, coefficients)`` is sum_j c_j k(., y_j).
        ``other`` is nu, the truth for instance, or the distance to it. For n independent draws the
        expected distance to the truth is at most sqrt(sup k / n).

        Examples
        --------
        >>> from kernelbayes import Gaussian, embed
        >>> k = Gaussian(1.0)
        >>> mu, nu, f = embed([0.0, 1.0], k), embed([0.5, 1.5], k), embed([0.2], k, [3.0])
        >>> bool(abs(mu.expect(f) - nu.expect(f)) <= mu.expect_bound(f, nu))
        True
        """
        return regions.expect_bound(self, f, other)

    def mean(self) -> Array:
        r"""Mean, shape (d,).

        Of an embedding that a rule made, around its ``centre`` c, the prior's mean:

        .. math:: c + \sum_i w_i (z_i - c)

        so that mass which is missing counts at c, and an offset of the data is added to the mean
        and to nothing else. Of any other embedding c = 0, the papers' estimate, which
        ``expect(lambda z: z)`` and ``moment(1)`` always give. Weights that sum to one have the same
        mean either way.

        On circles and rotations (``Periodic``, ``Rotation``, and ``Parts`` of them) the extrinsic
        mean, a point of the space again.
        """
        return regions.mean(self)

    def moment(self, k: int) -> Array:
        """Raw moment of order k of each coordinate, shape (d,)."""
        return regions.moment(self, k)

    def cov(self) -> Array:
        """Covariance matrix (d, d), centred.

        Of the weights divided by their sum. Where some are negative, a variance could come out
        negative too: deviations are then those of :meth:`std`, correlations of :meth:`valid`.
        """
        return regions.covariance(self)

    def std(self) -> Array:
        """Return the standard deviation of each coordinate, shape (d,).

        Where weights are negative, that of the rearranged distribution function, as for intervals.
        """
        return regions.deviation(self)

    def var(self) -> Array:
        """Variance of each coordinate, shape (d,): the squares of :meth:`std`."""
        return self.std() ** 2

    # --- a distribution ---------------------------------------------------------------------------

    def prob(self, region: regions.Region, valid: Validity = True) -> Array:
        """Probability of a region: a box (low, high) or a predicate on points.

        The ends of a box are numbers or one per coordinate, and may be infinite. "rearranged"
        is for intervals of scalar points. False is the sum of the weights in the region (KMCF16 eq.
        5.24), which may leave [0, 1].

        Examples
        --------
        >>> from kernelbayes import Gaussian, embed
        >>> mu = embed([0.0, 1.0, 2.0], Gaussian(1.0), [0.2, 0.3, 0.5])
        >>> mu.prob((0.5, 2.5)), mu.prob(lambda x: x[:, 0] < 1.5)
        (np.float64(0.8), np.float64(0.5))
        """
        return self._sum(regions.prob, validity(valid), region)

    def cdf(self, x: PointsLike, valid: Validity = True) -> Array:
        """Distribution function at points x (k, d), shape (k,); "rearranged" is for scalars."""
        return self._sum(regions.cdf, validity(valid), self._in_order(x))

    def quantile(self, q: float | Sequence[float] | Array, valid: Validity = True) -> Array:
        """Quantiles of each coordinate at levels q, shape (len(q), d).

        Between points the distribution function is interpolated. The raw one, which need not be
        monotone, is not: its quantile is the first point at which it reaches q.

        Examples
        --------
        >>> import numpy as np
        >>> from kernelbayes import Gaussian, embed
        >>> embed(np.arange(101.0), Gaussian(1.0)).quantile([0.25, 0.5]).round(1)
        array([[24.7],
               [50. ]])
        """
        return self._ask(regions.quantile, validity(valid, "rearranged"), q)

    def median(self, valid: Validity = True) -> Array:
        """Median of each coordinate, shape (d,): the quantile at 1/2."""
        return self.quantile(0.5, valid)[..., 0, :]

    def interval(
        self, level: float = 0.9, kind: regions.Shape = "equal-tailed", valid: Validity = True
    ) -> Array:
        """Credible interval of each coordinate, shape (d, 2).

        Equal-tailed, or the shortest one ("highest": where the density is highest, if it has one
        peak). That of an angle (``Periodic``) is an arc around the mean direction: its low end is
        in [0, period), its high end may lie beyond the period.

        With a ``calibration``, equal-tailed ones hold left-out data as often as ``level`` says
        (unless ``valid`` is given). Others, and quantiles, are the embedding's own.

        Examples
        --------
        >>> import numpy as np
        >>> from kernelbayes import Gaussian, embed
        >>> mu = embed(np.random.default_rng(0).exponential(size=5000), Gaussian(1.0))
        >>> mu.interval(0.9).round(1), mu.interval(0.9, kind="highest").round(1)
        (array([[0.1, 3.1]]), array([[0. , 2.3]]))
        """
        if self.calibration is not None and valid is True and kind == "equal-tailed":
            found: Array = self.calibration.interval(self, level)
            return found
        return self._ask(regions.interval, validity(valid, "rearranged"), level, kind, self.kernel)

    def density(self, X: PointsLike, bandwidth: Bandwidth = None, valid: Validity = True) -> Array:
        r"""Density at points X (k, d), shape (k,).

        .. math:: \hat p(x) = \sum_i w_i J_h(x - x_i)

        with J_h the normal density of standard deviation h (KMCF16 eq. 5.4), a number or one per
        coordinate. By default h is Silverman's rule at the effective sample size, which oversmooths
        several narrow peaks; give a smaller one then. A density of raw weights may be negative;
        there is no rearranged one.

        Examples
        --------
        >>> from kernelbayes import Gaussian, embed
        >>> embed([0.0, 1.0], Gaussian(1.0)).density([0.5], bandwidth=0.5).round(3)
        array([0.484])
        """
        return self._sum(density.density, validity(valid), self._in_order(X), bandwidth)

    def log_density(
        self, X: PointsLike, bandwidth: Bandwidth = None, valid: Validity = True
    ) -> Array:
        """Log density at points X (k, d), shape (k,): finite where :meth:`density` underflows."""
        return self._ask(density.log_density, validity(valid), self._in_order(X), bandwidth)

    def mode(self, starts: int = 5, bandwidth: Bandwidth = None, by: Height = "density") -> Points:
        """Most probable point, shape (d,).

        By "density": the highest peak of :meth:`density`, by mean shift from the highest few
        (``starts``) of the heaviest points; for categories, rotations and other points that are not
        vectors the point where the embedding is highest. By "weight": the point whose weight, as it
        is, is largest (KMCF16 section 4.2.4), in any space; weights of coinciding points are not
        added up.

        Examples
        --------
        >>> from kernelbayes import Delta, Gaussian, embed
        >>> embed([0.0, 1.0, 1.1], Gaussian(1.0)).mode().round(2)
        array([1.02])
        >>> str(embed(["a", "b"], Delta(), [0.3, 0.7]).mode(by="weight"))
        'b'
        """
        return density.mode(self, starts, bandwidth, by)

    # --- a few points or numbers that stand for it ------------------------------------------------

    def summary(self, level: float = 0.9) -> Table:
        """Mean, deviation, median, interval and how far to trust them, for each coordinate.

        For a batch, of each member; ``to_frame()`` makes a pandas frame. The verdict is "good"
        unless less than five effective points or more than a tenth of the prior are behind it.

        Examples
        --------
        >>> import numpy as np
        >>> from kernelbayes import Gaussian, embed
        >>> embed(np.arange(101.0), Gaussian(1.0)).summary()
        variable  mean  sd     median  5%    95%    ess  verdict
        x0        50    29.15  50      4.55  95.45  101  good
        """
        return export.summary(self, level)

    def preimage(self, candidates: PointsLike | None = None) -> Points:
        """Return the point y, shape (d,), whose embedding k(., y) is closest to this one.

        Gaussian kernel: the fixed-point iteration of Mika et al. (1999). Other smooth kernels on
        vectors (Matern with nu > 1, linear, polynomial, periodic, their sums, products, parts and
        low-rank approximations): quasi-Newton ascent. Matrices (``Trace``): the weighted mean
        matrix; for rotations, the closest rotation to it. Everything else, or with ``candidates``:
        the best of the candidates (by default the embedding's own points).

        A peak is found, not surely the highest: several peaks have several good pre-images.

        Examples
        --------
        >>> from kernelbayes import Linear, Matern, embed
        >>> embed([[0.0, 1.0], [4.0, 5.0]], Linear()).preimage().round(6)  # the mean
        array([2., 3.])
        >>> embed([0.0, 0.2, 1.0], Matern(2.0, nu=2.5)).preimage().round(2)
        array([0.38])
        """
        return density.preimage(self, self._in_order(candidates))

    def mixture(
        self, components: int, rng: Rng = None, covariance: Covariance = "full", starts: int = 4
    ) -> Mixture:
        """Gaussian mixture closest to the embedding, divided by its mass, in RKHS distance.

        The kernel must be Gaussian, or a low-rank approximation of one. Detail much finer than its
        bandwidth is invisible to the fit: a bandwidth far above the width of the components gives
        covariances that mean little. The best of several searches is returned; their ``starts``
        are drawn by k-means++ from the weights of ``valid()``.

        Examples
        --------
        >>> import numpy as np
        >>> from kernelbayes import Gaussian, embed
        >>> rng = np.random.default_rng(0)
        >>> z = np.concatenate([rng.normal(-2.0, 0.5, size=300), rng.normal(2.0, 1.0, size=700)])
        >>> fit = embed(z, Gaussian(0.5)).mixture(2, rng=0)
        >>> order = np.argsort(fit.means[:, 0])
        >>> fit.weights[order].round(1), fit.means[order, 0].round(1)
        (array([0.3, 0.7]), array([-2. ,  1.9]))
        """
        return mixture(self, components, rng, covariance, starts)

    def sample(
        self, m: int, rng: Rng = None, method: Method = "herding", bandwidth: Bandwidth = None
    ) -> Points:
        """Draw m points, shape (m, d); (batch, m, d) from a batch.

        "herding" picks among the embedding's points so that the m picks together stand for it
        best; it is deterministic. "iid" draws independently from the weights of ``valid()`` and
        smooths vectors by ``bandwidth``, a standard deviation or one per coordinate; 0 for none.
        The default is a quarter of Silverman's rule (all of it would merge two peaks). Draws are
        shrunk towards the mean (Liu and West 2001), so that the covariance stays.

        Examples
        --------
        >>> import numpy as np
        >>> from kernelbayes import Gaussian, embed
        >>> mu = embed(np.random.default_rng(0).normal(size=1000), Gaussian(1.0))
        >>> mu.sample(3).shape, mu.sample(500, rng=0, method="iid").std().round(1)
        ((3, 1), np.float64(0.9))
        """
        return density.sample(self, m, rng, method, bandwidth)

    # --- out of the library -----------------------------------------------------------------------

    def to_frame(self) -> Any:
        """Pandas frame of the points, one row each, with their weights as they are.

        Columns are named as in the frame the points came from, or "x0", "x1", ... ("point" for
        points that are not vectors), then "weight"; for a batch "weight_0", "weight_1", ...

        Examples
        --------
        >>> from kernelbayes import Gaussian, embed
        >>> embed([0.5, 1.5], Gaussian(1.0)).to_frame()
            x0  weight
        0  0.5     0.5
        1  1.5     0.5
        """
        return export.to_frame(self)

    def to_arviz(self, n_draws: int = 1000, rng: Rng = None, bandwidth: Bandwidth = None) -> Any:
        """ArviZ InferenceData (a DataTree from ArviZ 1.0 on) whose posterior group holds draws.

        ArviZ knows no weights, so they are resolved to independent draws of one chain:
        ``sample(n_draws, rng, "iid", bandwidth)``. Variables have the points' column names, or
        "x0", "x1", ...; those of a batch have one more dimension, its members.
        """
        return export.to_arviz(self, n_draws, rng, bandwidth)

    def plot(self, ax: Any = None, level: float = 0.9, label: str | None = None) -> Any:
        """Draw the distribution: of one coordinate, of two, or all pairs of more (a corner plot).

        One coordinate: the density, its interval shaded, the mean as a line; of categories, bars.
        Two: the points, sized by their weight, and the contours around 50 and 90 % of the mass.
        More: these two in a lower triangle. A batch over one coordinate: a density for each of up
        to six members, else interval and median against the member's number, as for all vectors.
        Silverman's rule widens narrow peaks; draw ``density(x, bandwidth)`` yourself then.

        Returns matplotlib Axes, or an array of them. ``ax`` says where to draw if one axes is
        enough, ``level`` is that of the shaded interval, ``label`` is for the legend.
        """
        return export.plot(self, ax, level, label)

    def _ask(self, question: Callable[..., Floats], kind: Kind, *asked: Any) -> Array:
        """Answer of a function on points, weights (m, n) that sum to one, and their kind."""
        return self._answer(question(self.points, self.valid_weights(kind), kind, *asked))

    def _sum(self, question: Callable[..., Floats], kind: Kind, *asked: Any) -> Array:
        """Answer of a question that sums weights: raw ones are not divided by their sum."""
        if kind != "raw":
            return self._ask(question, kind, *asked)
        return self._answer(question(self.points, self._rows, kind, *asked))
