"""Estimates without the library: nearest neighbours and a recurrent network."""

from __future__ import annotations

import numpy as np
from films import SIDE, gaps
from sklearn.neighbors import KNeighborsRegressor

from kernelbayes.learned.nets import Net

FEATURES, EPOCHS = 16, 20


def neighbours(X, Z, new):
    """Mean state of the nearest frames, their number chosen on the last fifth."""
    X, cut = X.reshape(len(X), -1), len(X) * 4 // 5

    def near(k, rows):
        return KNeighborsRegressor(k, algorithm="brute").fit(X[rows], Z[rows])

    scores = {
        k: np.mean((near(k, slice(cut)).predict(X[cut::4]) - Z[cut::4]) ** 2) for k in (1, 5, 20)
    }
    return near(min(scores, key=scores.get), slice(None)).predict(new.reshape(-1, X.shape[1]))


def recurrent(X, Z, times, new, later, seed):
    """Estimates of a gated recurrent unit behind the same network, with the gaps as an input."""
    import torch

    net = Net("cnn", (SIDE, SIDE), 2 * FEATURES)
    middle, scale = net.scales(X[:, 0])

    class Baseline(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.see, self.say = net.build(), torch.nn.Linear(64, 2)
            self.remember = torch.nn.GRU(2 * FEATURES + 1, 64, batch_first=True)

        def forward(self, frames, gap):
            seen = self.see(frames.flatten(0, 1)).unflatten(0, frames.shape[:2])
            return self.say(self.remember(torch.cat([seen, gap], dim=-1))[0])

    def tensors(*arrays):
        return [torch.tensor(a, dtype=torch.float32) for a in arrays]

    inputs, gap, targets = tensors((X - middle) / scale, gaps(times)[..., None], Z)
    frames, between = tensors((new - middle) / scale, gaps(later)[..., None])
    held, rng, found = len(X) // 10, np.random.default_rng(seed), []
    with torch.random.fork_rng(devices=[]):
        for rate in (1e-3, 3e-3):
            torch.manual_seed(seed)
            model, best = Baseline(), (np.inf, None)
            optimiser = torch.optim.Adam(model.parameters(), rate)
            for _ in range(EPOCHS):
                model.train()
                order = held + rng.permutation(len(X) - held)
                for rows in np.array_split(order, len(X) // 8):
                    optimiser.zero_grad()
                    torch.mean((model(inputs[rows], gap[rows]) - targets[rows]) ** 2).backward()
                    optimiser.step()
                model.eval()
                with torch.no_grad():
                    rest = model(inputs[:held], gap[:held]) - targets[:held]
                    value = float(torch.mean(rest**2))
                    if value < best[0]:
                        best = value, model(frames, between).numpy()
            found.append(best)
    return min(found, key=lambda pair: pair[0])[1]
