"""Figure 5 of Xu, Chen, Doucet and Gretton (2022): filtering a heading from views of a maze.

A camera turns on the spot; each view of 36 x 48 pixels in colour shows where it looks, up to noise.
Filters learn from one sequence of T steps and track a new one of 200 steps. Error: squared distance
between (cos, sin) of the heading and the estimate, averaged over the steps. Quick: T = 300, two
runs. Full: T = 300, 500, 700 and 900, 30 runs. Needs torch.

Time: quick 45 s, full not measured.

    python experiments/iw22_fig5/run.py [--full] [--runs N] [--first SEED] [--jobs 2]
        [--sizes 900] [--methods importance learned]
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from views import main  # noqa: E402

# Medians read off the published figure, at T = 900.
PUBLISHED = {"original": 0.0388, "importance": 0.0304, "learned": 0.0278, "LSTM": 0.0337}

if __name__ == "__main__":
    raise SystemExit(main(__doc__, HERE, "maze", PUBLISHED, bars=("learned",)))
