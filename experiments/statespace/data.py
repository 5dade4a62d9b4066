"""Real data for evaluation, read from ../shared/data beside the repository when present."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data"


class Bluetooth(NamedTuple):
    """Signal strengths of 12 receivers, NaN where one missed the frame; positions in metres."""

    walks: list  # of (X (T, 12), Z (T, 2)), frames 0.45 s apart
    names: list
    X: np.ndarray  # stationary prints (5040, 12)
    Z: np.ndarray  # (5040, 2)


class PlaceCells(NamedTuple):
    """Square roots of spike counts of 31 units in the last second; positions in pixels."""

    train: list  # of (X (T, 31), Z (T, 2)), bins of 0.1 s
    test: list


def bluetooth() -> Bluetooth:
    """Nine walks and the prints of ble_tetam.npz (CC0; Danis et al.)."""
    file = np.load(FOLDER / "ble_tetam.npz", allow_pickle=False)

    def strength(name):
        X = file[name].astype(float)
        X[X >= 0.0] = np.nan  # no receiver hears 0 dBm: three readings are faulty
        return X

    X, Z, walk = strength("track_rssi"), file["track_pos"][:, :2].astype(float), file["track_id"]
    names = [str(name) for name in file["track_names"]]
    walks = [(X[walk == i], Z[walk == i]) for i in range(len(names))]
    return Bluetooth(walks, names, strength("fp_rssi"), file["fp_pos"].astype(float))


def place_cells(window: int = 10, slowest: float = 30.0, share: float = 0.7) -> PlaceCells:
    """Read placecells_lineartrack.npz (MIT, nelpy); the first 70 % of the bins are for training."""
    file = np.load(FOLDER / "placecells_lineartrack.npz", allow_pickle=False)
    total = np.cumsum(file["counts"], axis=0, dtype=float)
    total[window:] -= total[:-window].copy()  # sums over the last ten bins
    Z = file["pos"].astype(float)
    moving = np.flatnonzero((file["speed"] > slowest) & np.isfinite(Z).all(axis=1))
    cut = int(share * len(moving))
    return PlaceCells(*(_runs(np.sqrt(total), Z, part) for part in (moving[:cut], moving[cut:])))


class Walks(NamedTuple):
    """Wi-Fi scans along walks: signal strengths scaled to unit length, positions, odometry."""

    train: list  # of (X (T, 1099), Z (T, 2), U (T, 2)), scans about 2 s apart
    test: list


def wifi(held_out: int = 40) -> Walks:
    """Read wifi_walks.npz (MIT, XYZ10); 40 of the 156 walks are left out."""
    file = np.load(FOLDER / "wifi_walks.npz", allow_pickle=False)
    X = file["rssi"].astype(float) + 120.0
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9)
    heading, steps = file["heading"].astype(float), file["steps"].astype(float)
    U = np.column_stack([steps * np.sin(heading), steps * np.cos(heading)])
    Z, walk = file["pos"].astype(float), file["seq"]
    out = np.random.RandomState(0).permutation(156)[:held_out]
    parts = {i: (X[walk == i], Z[walk == i], U[walk == i]) for i in np.unique(walk)}
    chosen = set(out.tolist())
    return Walks(
        [part for i, part in parts.items() if int(i) not in chosen],
        [part for i, part in parts.items() if int(i) in chosen],
    )


def _runs(X, Z, bins):
    """Sequences of consecutive bins."""
    return [(X[b], Z[b]) for b in np.split(bins, np.flatnonzero(np.diff(bins) > 1) + 1)]


def column_means(*samples):
    """Mean of every column over several samples, without the missing values."""
    return np.nanmean(np.concatenate(samples), axis=0)


def filled(X, values):
    """X with missing entries replaced, column by column or by one number."""
    return np.where(np.isnan(X), values, X)
