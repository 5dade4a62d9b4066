"""Pages about results: whole, self-contained, escaped, and right about how far to trust them."""

import json
import math
import re
import warnings
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest

import kernelbayes as kb
import pages
from kernelbayes.embedding.export import trust
from kernelbayes.report import canvas, pictures, words
from kernelbayes.report.contents import constructor, rounded
from kernelbayes.select.calibration import Calibration

MOST_SCRIPT = 20_000  # bytes, by the design of the page


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Every kind of page, made once: its text and what a parser saw of it."""
    folder, found = tmp_path_factory.mktemp("pages"), {}

    def page(name):
        if name not in found:
            result, options = pages.PAGES[name][0]()
            path = kb.report(
                result, folder / f"{len(found)}.html", title=pages.HOSTILE[0], **options
            )
            text = path.read_text(encoding="utf-8")
            found[name] = text, pages.Seen(text)
        return found[name]

    return page


every_page = pytest.mark.parametrize("name", pages.PAGES)


@every_page
def test_a_page_is_whole_and_has_its_pictures(made, name):
    _, seen = made(name)
    assert seen.bad == []
    assert seen.open == []
    assert seen.count("figure", "picture") == pages.PAGES[name][1]
    for spec in (s for s in seen.json if isinstance(s, dict)):
        numbers = [*spec["x"], *spec["y"]]
        assert all(map(math.isfinite, numbers))
        assert spec["x"][0] < spec["x"][1]
        assert spec["y"][0] < spec["y"][1]
        assert all(len(row["values"]) == len(spec["at"]) for row in spec["rows"])
    drawn = [a["d"] for tag, a in seen.elements if tag == "path"]
    assert not any("nan" in d or "inf" in d for d in drawn)
    assert all(drawn)


@every_page
def test_a_page_asks_nothing_of_the_network(made, name):
    text, seen = made(name)
    for tag, attributes in seen.elements:
        for key in ("src", "href", "action", "srcset"):
            assert attributes.get(key, "data:,") == "data:,", (tag, attributes)
    assert "default-src 'none'" in text
    assert not re.search(r"@import|url\((?!#c)", text)
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) <= {"http://www.w3.org/2000/svg"}


@every_page
def test_names_cannot_break_out_of_a_page(made, name):
    text, seen = made(name)
    assert seen.count("img") == 0
    assert seen.count("b") == 0
    # The title is on every page, its words as they are; scripts are ours and JSON only.
    assert pages.HOSTILE[0] in seen.text
    assert "<script>alert" not in text
    scripts = [a.get("type") for tag, a in seen.elements if tag == "script"]
    assert scripts.count(None) == 1
    assert set(scripts) <= {None, "application/json"}


@every_page
def test_a_page_says_what_a_reader_asks(made, name):
    _, seen = made(name)
    assert "Code" in seen.text
    assert "import kernelbayes as kb" in seen.text
    if name != "tuned":
        assert "How far to trust it" in seen.text
        assert seen.count("table", "lights") == 1


def test_sliders_have_a_place_for_each_frame(made):
    for name in ("filter in the plane", "batch", "filter of names"):
        _, seen = made(name)
        places = next(s for s in seen.json if isinstance(s, list))
        slider = next(a for tag, a in seen.elements if tag == "input")
        assert int(slider["max"]) == len(places) - 1
        for spec in (s for s in seen.json if isinstance(s, dict) and "moving" in s):
            moving = spec["moving"]
            assert len(moving.get("frames") or moving["at"]) == len(places)


def test_frames_of_densities_are_those_of_the_library(made):
    """Each frame is the density of that belief, divided by its largest value on the grid."""
    _, seen = made("batch")
    result, _ = pages.PAGES["batch"][0]()
    spec = next(s for s in seen.json if isinstance(s, dict) and s["moving"]["kind"] == "curve")
    for i in (0, 7, 19):
        density = result[i].density(np.array(spec["moving"]["x"]))
        # Numbers are rounded to a ten-thousandth of the axis, across and upright.
        np.testing.assert_allclose(spec["moving"]["frames"][i], density / density.max(), atol=2e-3)


def test_series_tell_means_and_intervals(made):
    _, seen = made("batch")
    result, _ = pages.PAGES["batch"][0]()
    spec = next(s for s in seen.json if isinstance(s, dict) and s["moving"]["kind"] == "when")
    told = {row["label"]: row["values"] for row in spec["rows"]}
    resolution = 1e-4 * (spec["y"][1] - spec["y"][0])
    np.testing.assert_allclose(told["mean"], result.mean()[:, 0], atol=resolution)
    np.testing.assert_allclose(told["to"], result.interval(0.9)[:, 0, 1], atol=resolution)


def test_the_script_is_small():
    assert len((files("kernelbayes.report") / "page.js").read_bytes()) <= MOST_SCRIPT


@pytest.mark.parametrize("name", ["page.txt", "page", "none/page.html"])
def test_a_path_that_is_no_page_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"must end in .html|folder"):
        kb.report(pages.tested("mmd_test")[0], tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_what_has_no_page_is_refused(tmp_path):
    for what in (3.0, "text", object(), None):
        with pytest.raises(TypeError, match="cannot describe"):
            kb.report(what, tmp_path / "page.html")


def test_an_old_page_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(ValueError, match="level"):
        kb.report(pages.tested("mmd_test")[0], path, level=2.0)
    assert path.read_text() == "old"
    kb.report(pages.tested("mmd_test")[0], path)
    assert path.read_text().startswith("<!doctype html>")
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_code_makes_the_same_model():
    model, X = pages.rule("one")
    again = eval("kb." + constructor(model), {"kb": kb, **vars(kb)}).fit(X, pages.rows()[2][:, 0])
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-9)


def test_code_makes_the_same_filter():
    angle = np.cumsum(0.3 + 0.1 * np.random.default_rng(0).normal(size=80))
    Z = np.column_stack([np.cos(angle), np.sin(angle)])
    X = Z + 0.2 * np.random.default_rng(1).normal(size=Z.shape)
    model = kb.KernelBayesFilter(rank=15, rng=0).fit(X, Z)
    again = eval("kb." + constructor(model), {"kb": kb, **vars(kb)}).fit(X, Z)
    found, wanted = (m.filter(X[:20]) for m in (again, model))
    np.testing.assert_allclose(found.mean(), wanted.mean(), rtol=1e-9)
    np.testing.assert_allclose(found.interval(0.9), wanted.interval(0.9), rtol=1e-9)


# --- lights ---------------------------------------------------------------------------------------


def colours(lights):
    return {light.name: light.colour for light in lights}


def embedded(ess, n=100):
    """An embedding whose effective sample size is this: weights on as many of n points."""
    return kb.embed(np.arange(float(n)), kb.Gaussian(1.0), np.arange(n) < ess)


@pytest.mark.parametrize(
    ("ess", "colour"), [(100, "good"), (30, "good"), (29, "look"), (4, "look")]
)
def test_the_effective_sample_size_has_the_thresholds_of_the_docs(ess, colour):
    mu = embedded(ess).normalized()
    assert colours(words.lights_of(mu)) == {"effective sample size": colour}
    assert (trust(mu)[0]["verdict"] == "good") == (ess >= 30)


def test_an_answer_outside_the_sample_is_red_and_says_what_to_do():
    model, X = pages.rule("one")
    with pytest.warns(kb.NumericalWarning):
        far = model.posterior(np.full(2, 50.0))
    (light,) = (one for one in words.lights_of(far) if one.name == "support")
    assert light.colour == "bad"
    assert "outside" in light.means
    assert "training data" in light.advice
    assert words.overall(words.lights_of(far))[0] == "bad"
    with pytest.warns(kb.NumericalWarning):
        some = model.posterior(np.vstack([X[:30], np.full((1, 2), 50.0)]))
    assert colours(words.lights_of(some))["support"] == "look"  # 1 of 31


def test_calibration_is_judged_against_its_own_error():
    even = np.full(1000, 1e-3)
    level = (np.arange(1000) + 0.5) / 1000
    uniform = Calibration(level[:, None], even)
    assert words.calibration_light(uniform).colour == "good"
    # Too short: truths pile up at both ends of the intervals. 80 % are held, 10 points off.
    short = Calibration(np.clip((level - 0.5) * 0.9 / 0.8 + 0.5, 0, 1)[:, None], even)
    assert words.calibration_light(short).colour == "look"
    assert "too short" in words.calibration_light(short).advice
    wrong = Calibration(np.where(level > 0.5, 0.999, 0.001)[:, None], even)
    assert words.calibration_light(wrong).colour == "bad"
    few = Calibration(short.pit[::50], np.full(20, 0.05))  # 20 cannot tell 80 from 90 %
    assert words.calibration_light(few).colour == "good"


def test_corrected_intervals_are_not_called_too_short(tmp_path):
    beliefs, _ = pages.filtered("line")
    short = Calibration(np.linspace(0.05, 0.95, 200)[:, None] ** 9, np.full(200, 0.005))
    plain = kb.report(replace(beliefs, calibration=None), tmp_path / "a.html", calibration=short)
    assert "too short" in pages.Seen(plain.read_text()).text
    corrected = replace(beliefs, calibration=short)
    for options in ({}, {"calibration": short}):
        path = kb.report([corrected, corrected], tmp_path / "b.html", **options)
        text = pages.Seen(path.read_text()).text
        assert "those on this page are corrected" in text
        assert "too short" not in text


def test_a_law_has_no_smallest_p_value():
    x, y = np.random.default_rng(0).normal(size=(2, 40, 1))
    told = {"gamma": "gamma distribution", "linear": "Student's", "block": "p-values are at least"}
    for method, means in told.items():  # "block" permutes within blocks
        lights = words.lights_of(kb.mmd_test(x, y, method=method, rng=0))
        (light,) = (one for one in lights if one.name == "null distribution")
        assert means in light.means


def test_filters_that_were_lost_are_told():
    beliefs, _ = pages.filtered("line")
    T = len(beliefs)
    for lost, colour in ((T // 10, "good"), (T // 5, "look"), (T, "bad")):
        info = replace(beliefs.info, reset=np.arange(T) < lost)
        assert colours(words.lights_of(replace(beliefs, info=info)))["reset"] == colour


# One of 100 new data sets may be unlike all simulations; the page is the same.
@pytest.mark.filterwarnings("ignore:.*posteriors came with a warning:kernelbayes.NumericalWarning")
def test_checks_are_told_with_their_verdict(tmp_path):
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(300, 1))
    model = kb.LikelihoodFree(rng=0).fit(theta, pages.simulator(theta, rng))
    new = rng.normal(size=(100, 1))
    check = kb.sbc(model, theta=new, x=pages.simulator(new, rng), rng=0)
    path = kb.report(model.posterior([0.0]), tmp_path / "page.html", checks=[check])
    seen = pages.Seen(path.read_text())
    assert "RankCheck" in seen.text
    assert check.verdict in seen.text


def test_long_numbers_are_rounded():
    assert rounded("Gaussian(bandwidth=0.9383838383838)") == "Gaussian(bandwidth=0.9384)"


# --- the canvas -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("ends", [(0.0, 1.0), (-3.0, 7.0), (0.13, 0.17), (-1e-3, 5.0)])
def test_ticks_are_round_and_inside(ends, scale):
    low, high = (scale * end for end in ends)
    found = canvas.ticks(low, high)
    assert 2 <= len(found) <= 7
    step = found[1][0] - found[0][0]
    mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert min(abs(mantissa - k) for k in (1, 2, 5, 10)) < 1e-6
    for value, label in found:
        assert low - 1e-6 * step <= value <= high + 1e-6 * step
        assert abs(float(label) - value) <= 0.02 * step


@pytest.mark.parametrize("value", [0.0, 5.0, -1e9, 1e-30])
def test_equal_values_have_an_axis_that_holds_them(value):
    picture = canvas.Picture("t", "x", "y")
    picture.line(np.arange(3.0), np.full(3, value))
    (spec,) = pages.Seen(picture.html(0)).json
    assert spec["y"][0] < value < spec["y"][1]


def test_what_is_told_has_digits_of_its_own():
    picture = canvas.Picture("t", "x", "y")
    picture.dots(np.array([0.0, 1.0]), np.array([0.0, 1e6]))
    small = np.array([1.25e-4, 3.75e-4])
    picture.hover(np.array([0.0, 1.0]), "small", small)
    picture.hover(np.array([0.0, 1.0]), "equal", np.full(2, 1.25e-4))
    picture.hover(np.array([0.0, 1.0]), "none", np.full(2, np.nan))
    spec = json.loads(re.search(r"json\">(.*?)</script>", picture.html(0))[1])
    assert spec["rows"][0]["values"] == small.tolist()
    assert spec["rows"][1]["values"] == [1.25e-4] * 2
    assert spec["rows"][2]["values"] == [None] * 2


def test_the_mean_that_is_drawn_is_that_of_the_table():
    model, _ = pages.rule("one")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kb.NumericalWarning)
        mu = model.posterior(np.full(2, 3.0))
    (drawn,) = (
        layer["x"][0] for layer in pictures.of_one(mu, None, 0.9).pictures[0].layers
        if layer["label"] == "mean"
    )  # fmt: skip
    np.testing.assert_allclose(drawn, mu.mean()[0])


def test_values_that_are_missing_break_a_line():
    picture = canvas.Picture("t", "x", "y")
    picture.line(np.arange(5.0), np.array([0.0, 1.0, np.nan, 1.0, 0.0]), "v")
    seen = pages.Seen(picture.html(0))
    (drawn,) = (a["d"] for tag, a in seen.elements if tag == "path")
    assert drawn.count("M") == 2
    assert seen.json[0]["rows"][0]["values"][2] is None
