"""A recurrent network that predicts each state from the last observations: the LSTM of IW22."""

from __future__ import annotations

import numpy as np

from kernelbayes.learned.nets import Net, kind_of

WINDOW, HIDDEN, FEATURES = 10, 64, 32  # IW22 section 5.3 and the authors' settings
RATES = (1e-3, 3e-3)  # tried, as one start each; the authors have one, of 1e-2
CHUNK, PATIENCE = 64, 20  # steps of a batch; epochs without a gain on the held-out end


def windows(features, size=WINDOW):
    """Windows (T, size, p) that end at each of T steps; before the first step its own features."""
    import torch

    padded = torch.cat([features[:1].expand(size - 1, -1), features])
    return padded.unfold(0, size, 1).movedim(2, 1)


def lstm(X, Z, new, seed=0, epochs=100):
    """Estimates (T, d) of the states of ``new`` (T, ...), learned from X (n, ...) and Z (n, d).

    Each observation goes through the network that learned features have, windows of the results
    through an LSTM. The last fifth of the sequence decides when to stop, and on the rate.
    """
    import torch

    net = Net(kind_of(X.shape[1:]), X.shape[1:], FEATURES)
    middle, scale = net.scales(X)
    X, new = (X - middle) / scale, (new - middle) / scale

    class Recurrent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.see = net.build()
            self.remember = torch.nn.LSTM(FEATURES, HIDDEN, batch_first=True)
            self.say = torch.nn.Linear(HIDDEN, Z.shape[1])

        def forward(self, images):
            return self.say(self.remember(windows(self.see(images)))[0][:, -1])

    centre, spread = Z.mean(axis=0), Z.std(axis=0)
    inputs, targets = (torch.tensor(a, dtype=torch.float32) for a in (X, (Z - centre) / spread))
    n, rng, found = len(X) - len(X) // 5, np.random.default_rng(seed), []
    with torch.random.fork_rng(devices=[]):
        for rate in RATES:
            torch.manual_seed(seed)
            model, best, waited = Recurrent(), (np.inf, None), 0
            optimiser = torch.optim.Adam(model.parameters(), rate)
            for _ in range(epochs):
                model.train()
                for start in rng.permutation(np.arange(0, n - WINDOW, CHUNK)):
                    rows = slice(start, min(n, start + CHUNK + WINDOW - 1))
                    optimiser.zero_grad()
                    # The first windows of a batch are padded, as those of a sequence are.
                    torch.mean((model(inputs[rows]) - targets[rows]) ** 2).backward()
                    optimiser.step()
                model.eval()
                with torch.no_grad():
                    value = float(torch.mean((model(inputs[n:]) - targets[n:]) ** 2))
                    waited += 1
                    if value < best[0]:
                        estimate = model(torch.tensor(new, dtype=torch.float32)).numpy()
                        best, waited = (value, estimate * spread + centre), 0
                if waited == PATIENCE:
                    break
            found.append(best)
    return min(found, key=lambda pair: pair[0])[1]
