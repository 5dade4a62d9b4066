"""Choosing kernels and ridges from data, and correcting the levels of intervals."""

from kernelbayes.select import rule  # noqa: F401 (registers what tune can do)
from kernelbayes.select.calibration import Calibration, calibrate
from kernelbayes.select.tuning import Table, folds, progress_bar, rescaled, search_scales, tune

__all__ = [
    "Calibration",
    "Table",
    "calibrate",
    "folds",
    "progress_bar",
    "rescaled",
    "search_scales",
    "tune",
]
