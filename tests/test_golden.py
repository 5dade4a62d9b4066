"""Nothing has changed: every number of ``golden.json`` is still what it was."""

import pytest

import golden

# Entries, or whole cases, whose old value was wrong: name -> why.
MENDED: dict[str, str] = {
    "rules.tune.marginal": "the marginal criterion has the prior in force (KBR13 section 4.2)",
    "rules.tune.marginal_mean": "as above",
    "rules.tune.marginal_scores": "as above",
    **dict.fromkeys(
        (f"filters.tune.montecarlo{part}" for part in ("", "_mean", "_scores")),
        "independent pairs were filtered as if they were a sequence",
    ),
    "decode.peaks.mode_weight": "argmax of the weights as they are, not of the projected ones",
    "filters.categories.frame": "columns for rescues and for the prediction's share",
    "filters.defaults.frame": "columns for rescues and for the prediction's share",
    "rules.estimator.defaults_score": "outside the training sample what is missing is the prior's",
}


def mended(name):
    return name in MENDED or name.rpartition(".")[0] in MENDED


@pytest.mark.fixed_seed
@pytest.mark.parametrize("group", golden.GROUPS)
def test_the_numbers_are_what_they_were(group):
    old = {name: value for name, value in golden.read().items() if name.split(".")[0] == group}
    found = golden.compute(group)
    compared = {name: value for name, value in found.items() if not mended(name)}
    lines = golden.differences(compared, {k: v for k, v in old.items() if not mended(k)})
    lines += [f"{name}: made by no case" for name in old.keys() - found.keys() if mended(name)]
    assert not lines, "\n" + "\n".join(lines)


def test_every_entry_has_a_group_and_every_mended_name_an_entry():
    names = golden.read().keys()
    assert {name.split(".")[0] for name in names} == set(golden.GROUPS)
    known = names | {name.rpartition(".")[0] for name in names}
    assert MENDED.keys() <= known


def test_a_difference_is_named_with_both_numbers():
    found = {"a.b.c": golden.total([1.0, 2.0]), "a.b.d": golden.total([1.0])}
    same = {name: float(value) for name, value in found.items()}
    assert golden.differences(found, same) == []
    assert golden.differences(found, {k: v * (1 + 1e-10) for k, v in same.items()}) == []
    (line,) = golden.differences(found, same | {"a.b.c": 3.0})
    assert line.startswith("a.b.c: was 3.0, now ")
    first, second = golden.differences(found, {"a.b.c": same["a.b.c"], "a.b.e": 1.0})
    assert "a.b.e: made by no case" in first
    assert "a.b.d: not in the file" in second
