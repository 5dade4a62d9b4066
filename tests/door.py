"""What the tests of the door share: samples as frames, and the law that columns have names."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

every_frame = pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, dict])


def plain(values, _=None):
    return values


def frame_of(kind, values, names, order=(0, 1), renamed=False):
    columns = {names[j]: values[:, j] for j in order}
    if renamed:
        columns["other"] = columns.pop(names[1])
    return kind(columns)


def ask_by_name(ask, kind, names, **changed):
    """Ask with frames: those of training as they are, those of the question changed."""
    return ask(
        lambda values, role: frame_of(kind, values, names[role]),
        lambda values, role: frame_of(kind, values, names[role], **changed),
    )


def assert_put_in_order(ask, kind, names, atol):
    """Columns in another order give the answer of plain arrays, up to rounding."""
    found = ask_by_name(ask, kind, names, order=(1, 0))
    np.testing.assert_allclose(found, ask(plain, plain), rtol=1e-7, atol=atol)
