"""Figure 6 of Xu, Chen, Doucet and Gretton (2022): filtering a heart seen in noisy images.

A state turns in the plane at an oscillating radius; each image of 64 x 64 pixels shows a heart
where the state is, up to noise. Filters learn from one sequence of T steps and track a new one of
200 steps. Error: squared distance to the state, averaged over the steps. Quick: T = 300, two runs.
Full: T = 300, 500, 700 and 900, 30 runs. Needs torch.

Time: quick 60 s, full not measured.

    python experiments/iw22_fig6/run.py [--full] [--runs N] [--first SEED] [--jobs 2]
        [--sizes 900] [--methods importance learned]
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from views import main  # noqa: E402

# Medians read off the published figure, at T = 900.
PUBLISHED = {"original": 0.0241, "importance": 0.0183, "learned": 0.0137, "LSTM": 0.0386}

if __name__ == "__main__":
    raise SystemExit(main(__doc__, HERE, "sprites", PUBLISHED, bars=("importance", "learned")))
