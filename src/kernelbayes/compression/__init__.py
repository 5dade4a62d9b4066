r"""Compression: a few points that stand for a distribution.

:func:`herd` picks points whose equally weighted embedding is close to a given one, :func:`compress`
does the same by better methods too and reports the error after every pick, :func:`thin` chooses
m of n samples, and :func:`resample` makes uneven weights equal. The numerics are in
:mod:`kernelbayes.herding`.

For any function f of the RKHS the average over the herd is off by at most ``|f|`` times the RKHS
distance (KMCF16 section 2.7). Its square falls at least like 4 C^2 (1 + ln l) / l in the number l
of picks (KMCF16 eq. 3.27), in practice much faster than the 1/l of independent draws.

An embedding whose weights do not sum to one is divided by its mass first: the herd has mass one.
Negative weights need no care, since only values of mu enter.

>>> import numpy as np
>>> from kernelbayes import Gaussian, embed, herd, mmd
>>> X = np.random.default_rng(0).normal(size=(2000, 2))
>>> mu = embed(X, Gaussian(1.0))
>>> picked = herd(mu, 20)
>>> bool(mmd(mu, embed(picked, mu.kernel)) < mmd(mu, embed(X[:20], mu.kernel)) / 3)
True
"""

from kernelbayes.compression.compressed import Compressed, compress, herd, thin
from kernelbayes.compression.resampling import Resampled, resample

__all__ = ["Compressed", "Resampled", "compress", "herd", "resample", "thin"]
