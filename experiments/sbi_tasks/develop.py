"""C2ST on development observations, quick: to compare two states of the code.

    python experiments/sbi_tasks/develop.py --simulations 1000 --runs 3 --tasks sir slcp
    python experiments/sbi_tasks/develop.py --shared        # one model for all observations

Each observation has its own simulations and model unless ``--shared``. The network of the paper is
stopped after 120 epochs and has three folds, so scores are lower than in the table of ``run.py``.
SLCP is given flat, the GLM with its normal prior, as published methods are given them. Printed
beside the mean: each observation, its largest shift of a mean in exact deviations, the smallest and
largest ratio of deviations, the variant. Seeds from 1000 on are for this.
"""

import argparse
import time
import warnings

import numpy as np
from glm import PRIOR_FACTOR
from references import reference
from scipy import stats
from sklearn.model_selection import KFold, cross_val_score
from sklearn.neural_network import MLPClassifier
from tasks import TASKS, observation, simulations
from threadpoolctl import threadpool_limits

import kernelbayes as kb

NAMES = [name for name in TASKS if name not in ("slcp_distractors", "bernoulli_glm_raw")]
DRAWS, EPOCHS, FOLDS = 1000, 120, 3


def fitted(name, n, seed):
    """Model of n simulations, and its CPU seconds."""
    prior = TASKS[name].prior
    if name == "bernoulli_glm":
        prior = stats.multivariate_normal(cov=PRIOR_FACTOR @ PRIOR_FACTOR.T)
    start = time.process_time()
    model = kb.LikelihoodFree(prior, rng=0).fit(*simulations(TASKS[name], n, seed))
    return model, time.process_time() - start


def scored(model, name, seed):
    """C2ST of an observation, and what tells the two samples apart."""
    posterior = model.posterior(observation(TASKS[name], seed)[1])
    exact, draws = reference(TASKS[name], seed)[:DRAWS], posterior.sample(DRAWS, rng=1)
    width = 10 * exact.shape[1]
    network = MLPClassifier((width, width), max_iter=EPOCHS, random_state=1)
    both = (np.vstack([exact, draws]) - exact.mean(axis=0)) / exact.std(axis=0)
    folds = KFold(FOLDS, shuffle=True, random_state=1)
    score = cross_val_score(network, both, np.repeat([0, 1], DRAWS), cv=folds).mean()
    shift = float(np.max(np.abs(draws.mean(axis=0) - exact.mean(axis=0)) / exact.std(axis=0)))
    ratio = draws.std(axis=0) / exact.std(axis=0)
    about = f"shift {shift:.2f}, deviations {ratio.min():.2f} to {ratio.max():.2f}"
    return score, f"{about}, {posterior.diagnostics.method}"


def main():
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=NAMES)
    parser.add_argument("--first", type=int, default=1000, help="first seed")
    parser.add_argument("--runs", type=int, default=3, help="observations of each task")
    parser.add_argument("--shared", action="store_true", help="one model for all observations")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.tasks:
        scores, model, seconds = [], None, 0.0
        for seed in range(given.first, given.first + given.runs):
            if model is None or not given.shared:
                model, seconds = fitted(name, given.simulations, seed)
            score, about = scored(model, name, seed)
            scores.append(score)
            print(f"    {name} {seed}: {score:.3f}, {about}, fit {seconds:.1f} s", flush=True)
        print(f"{name:25s} {np.mean(scores):.3f} of {len(scores)}", flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
