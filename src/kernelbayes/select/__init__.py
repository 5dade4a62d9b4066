"""Choosing kernels and ridges from data, and correcting the levels of intervals."""

from kernelbayes.select import rule  # noqa: F401 (registers what tune can do)
from kernelbayes.select.calibration import Calibration, calibrate
from kernelbayes.select.search import Trial, coarse_to_fine, progress_bar, race
from kernelbayes.select.tuning import tune
from kernelbayes.tables import Row, Table

__all__ = [
    "Calibration",
    "Row",
    "Table",
    "Trial",
    "calibrate",
    "coarse_to_fine",
    "progress_bar",
    "race",
    "tune",
]
