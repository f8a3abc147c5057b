"""Plots show the numbers of the curves, accept extreme input and change no global setting."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
from functools import partial

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from matplotlib.quiver import Quiver

import calibrant
from calibrant import focal, plots
from calibrant.focal.simplex import simplex_grid, to_plane, to_simplex
from calibrant.metrics.reliability import (
    classwise_curves,
    confidence_histogram,
    reliability_curve,
    risk_coverage_curve,
)
from calibrant.plots import palette, simplex

matplotlib.use("agg")
RNG = np.random.default_rng(0)


def honest(n: int, sharper: float) -> tuple[np.ndarray, np.ndarray]:
    """Predictions that are calibrated for ``sharper`` 1, over-confident above."""
    truth = RNG.dirichlet([0.6] * 4, size=n)
    labels = np.array([RNG.choice(4, p=p) for p in truth])
    probs = truth**sharper
    return probs / probs.sum(axis=-1, keepdims=True), labels


OVER, UNDER = honest(600, 2.5), honest(600, 0.5)
HOSTILE = {
    "ordinary": (OVER, {}),
    "timid": (UNDER, {}),
    "one sample": ((np.array([[0.7, 0.2, 0.1]]), np.array([0])), {}),
    "one wrong sample": ((np.array([[1.0, 0.0]]), np.array([1])), {}),
    "all sure": ((np.eye(3)[[0, 1, 2, 0]], np.array([0, 1, 2, 1])), {}),
    "all tied": ((np.full((9, 2), 0.5), np.arange(9) % 2), {}),
    "no gap at all": ((np.eye(2)[[0, 1]], np.array([0, 1])), {}),
    "one bin": (OVER, {"n_bins": 1}),
    "two bins": (OVER, {"n_bins": 2}),
    "a hundred bins": (OVER, {"n_bins": 100}),
    "light weights": (OVER, {"sample_weight": RNG.random(600) * 1e-9}),
    "heavy weights": (OVER, {"sample_weight": RNG.integers(0, 2, 600) * 10**9}),
}


@pytest.fixture(autouse=True)
def no_global_setting_changes():
    before = copy.deepcopy(dict(matplotlib.rcParams))
    yield
    assert dict(matplotlib.rcParams) == before


@pytest.fixture
def ax():
    return Figure(figsize=(4, 4)).subplots()


def rendered(ax_or_figure) -> bytes:
    figure = getattr(ax_or_figure, "figure", None) or ax_or_figure
    with io.BytesIO() as file:
        figure.savefig(file, format="png", dpi=40)
        return file.getvalue()


def legend_of(ax) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def points_of(container: ErrorbarContainer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, y and the two ends of each interval."""
    line, _, (bars,) = container.lines
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    return line.get_xdata(), line.get_ydata(), ends


@pytest.mark.parametrize("case", sorted(HOSTILE))
@pytest.mark.parametrize("binning", ["width", "mass"])
def test_the_diagram_shows_the_curve(ax, case, binning):
    (probs, labels), options = HOSTILE[case]
    curve = reliability_curve(probs, labels, binning=binning, top_class=True, **options)
    plots.plot_reliability(curve, ax, label="a name")
    full = curve.full
    (container,) = (c for c in ax.containers if isinstance(c, ErrorbarContainer))
    x, y, ends = points_of(container)
    assert x == pytest.approx(curve.confidence[full])
    assert y == pytest.approx(curve.accuracy[full])
    assert ends[:, 0] == pytest.approx(curve.accuracy_low[full])
    assert ends[:, 1] == pytest.approx(curve.accuracy_high[full])
    *gaps, strip = (c for c in ax.containers if isinstance(c, BarContainer))
    sides = {"over-confident": curve.gap > 0, "under-confident": curve.gap < 0}
    assert {bars.get_label() for bars in gaps} == {name for name in sides if sides[name].any()}
    for bars in gaps:
        side = sides[bars.get_label()]
        heights = [bar.get_height() for bar in bars]
        assert heights == pytest.approx(curve.gap[side])
        assert [bar.get_y() for bar in bars] == pytest.approx(curve.accuracy[side])
        if binning == "width" and len(curve.count) < 80:
            assert [bar.get_x() for bar in bars] == pytest.approx(curve.lower[side])
            widths = (curve.upper - curve.lower)[side]
            assert [bar.get_width() for bar in bars] == pytest.approx(widths)
    assert len(strip) == full.sum()
    steps = 1 + np.log10(curve.count[full] / curve.count[full].min())
    heights = np.array([bar.get_height() for bar in strip])
    assert heights / heights.max() == pytest.approx(steps / steps.max())
    name, facts = ax.get_title().split("\n")
    assert name == "a name"
    assert f"ECE {curve.ece:.4f}, accuracy {curve.overall_accuracy:.3f}" in facts
    assert "accuracy, 95% interval" in legend_of(ax)
    assert rendered(ax)


def test_two_classes_show_the_probability_of_class_1():
    probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]])
    curve, histogram = (
        make(probs, [1, 1, 0, 1]) for make in (reliability_curve, confidence_histogram)
    )
    above, below = plots.draw_reliability(curve, histogram).axes
    assert (above.get_ylabel(), below.get_xlabel()) == (
        "share of class 1",
        "probability of class 1",
    )
    assert {"probability too high", "probability too low"} < set(legend_of(above))
    assert legend_of(below) == ["3 of class 1", "1 of other classes"]


def test_counts_are_written_out(ax):
    curve = reliability_curve(*OVER)
    plots.plot_reliability(curve, ax)
    said = [text.get_text() for text in ax.texts]
    assert said == [f"{count:,.0f}" for count in curve.count if count > 0]


@pytest.mark.parametrize(("n_bins", "said"), [(7, "85 or 86 in each bin"), (6, "100 in each bin")])
def test_equal_mass_counts_are_said_once(ax, n_bins, said):
    plots.plot_reliability(reliability_curve(*OVER, n_bins=n_bins, binning="mass"), ax)
    assert [text.get_text() for text in ax.texts] == [said]


def test_without_counts_the_diagram_is_the_unit_square(ax):
    plots.plot_reliability(reliability_curve(*OVER), ax, counts=False)
    assert ax.get_ylim() == ax.get_xlim() == pytest.approx((-0.02, 1.02))
    assert not ax.texts


def test_the_legend_leaves_the_data_free(ax):
    plots.plot_reliability(reliability_curve(*UNDER), ax)
    rendered(ax)
    corner = ax.get_legend().get_window_extent().transformed(ax.transData.inverted())
    assert corner.x0 > 0.3
    assert -0.03 < corner.y0 < corner.y1 < 0.5


def test_one_class(ax):
    curve = classwise_curves(*OVER)[2]
    plots.plot_reliability(curve, ax)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("probability of class 2", "share of class 2")


@pytest.mark.parametrize("case", sorted(HOSTILE))
def test_curves_over_each_other(ax, case):
    (probs, labels), options = HOSTILE[case]
    curves = {
        "before": reliability_curve(probs, labels, **options),
        "after": reliability_curve(probs, labels, binning="mass", **options),
    }
    plots.plot_reliability_overlay(curves, ax)
    for container, curve in zip(ax.containers, curves.values(), strict=True):
        x, y, ends = points_of(container)
        assert x == pytest.approx(curve.confidence[curve.full])
        assert y == pytest.approx(curve.accuracy[curve.full])
        assert ends[:, 1] == pytest.approx(curve.accuracy_high[curve.full])
    width, mass = curves.values()
    assert legend_of(ax) == [f"before, ECE {width.ece:.4f}", f"after, AdaECE {mass.ece:.4f}"]
    assert rendered(ax)


@pytest.mark.parametrize("case", sorted(HOSTILE))
def test_the_histogram_shows_correct_and_wrong(ax, case):
    (probs, labels), options = HOSTILE[case]
    histogram = confidence_histogram(probs, labels, **options)
    plots.plot_confidence_histogram(histogram, ax)
    correct, wrong = (patch for patch in ax.patches if isinstance(patch, StepPatch))
    for steps, counts in ((correct, histogram.correct), (wrong, histogram.wrong)):
        values, edges, _ = steps.get_data()
        assert values.tolist() == counts.tolist()
        assert edges.tolist() == histogram.edges.tolist()
    low, high = ax.get_ylim()
    seen = np.concatenate([histogram.correct, histogram.wrong])
    assert low < seen[seen > 0].min()
    assert seen.max() < high
    assert rendered(ax)
    inside = [tick for tick in ax.get_yticks() if low <= tick <= high]
    assert inside, "the axis must have a number on it"


@pytest.mark.parametrize("case", sorted(HOSTILE))
def test_the_risk_curve_is_drawn_point_by_point(ax, case):
    (probs, labels), options = HOSTILE[case]
    options = {name: value for name, value in options.items() if name != "n_bins"}
    curves = {
        "model": risk_coverage_curve(probs, labels, **options),
        "other": risk_coverage_curve(*OVER),
    }
    plots.plot_risk_coverage(curves, ax)
    for line, (name, curve) in zip(ax.lines, curves.items(), strict=True):
        assert line.get_xdata().tolist() == curve.coverage.tolist()
        assert line.get_ydata().tolist() == curve.risk.tolist()
        assert line.get_label() == f"{name}, AURC {curve.aurc:.4f}"
        assert curve.risk[-1] < ax.get_ylim()[1]
    assert rendered(ax)


def test_names_are_shown_as_they_are(ax):
    name = r"_run $\bad{ $2 <b>"
    curve = reliability_curve(*OVER)
    plots.plot_reliability_overlay({name: curve}, ax)
    assert legend_of(ax) == [f"{name}, ECE {curve.ece:.4f}"]
    plots.plot_reliability(curve, ax, label=name)
    assert rendered(ax)
    other = Figure().subplots()
    plots.plot_risk_coverage({name: risk_coverage_curve(*OVER)}, other)
    assert legend_of(other)[0].startswith(name)
    assert rendered(other)


def test_no_curves_at_all(ax):
    plots.plot_reliability_overlay({}, ax)
    plots.plot_risk_coverage({}, ax)
    assert ax.get_legend() is None
    assert rendered(ax)


@pytest.mark.parametrize("case", ["ordinary", "one wrong sample", "two bins", "heavy weights"])
def test_the_figure_of_the_command(case):
    (probs, labels), options = HOSTILE[case]
    curve = reliability_curve(probs, labels, **options)
    figure = plots.draw_reliability(curve, confidence_histogram(probs, labels, **options))
    above, below = figure.axes
    assert f"ECE {curve.ece:.4f}" in above.get_title()
    assert above.get_xlim() == below.get_xlim()
    assert len(below.patches) == 2
    assert rendered(figure)


def test_many_curves_look_different():
    looks = [palette.look(i) for i in range(30)]
    assert len(set(looks)) == 30
    shades = [np.dot(to_rgba(look.color)[:3], [0.299, 0.587, 0.114]) for look in looks[:3]]
    assert min(abs(np.diff(shades))) > 0.05


# --- three classes ---


def test_the_triangle_and_back():
    corners = to_plane(np.eye(3))
    sides = np.linalg.norm(corners - np.roll(corners, 1, axis=0), axis=1)
    assert sides == pytest.approx([1, 1, 1])
    rows = RNG.dirichlet([1, 1, 1], size=50)
    assert to_simplex(to_plane(rows)) == pytest.approx(rows, abs=1e-15)
    with pytest.raises(ValueError, match="three classes; found 4"):
        plots.plot_risk_isolines(squares, np.full(4, 0.25), Figure().subplots())


@pytest.mark.parametrize("n", [1, 2, 30])
def test_the_grid_is_even_and_inside(n):
    grid = simplex_grid(n)
    assert len(grid) == len(np.unique(grid.round(9), axis=0)) == n * (n + 1) // 2
    assert grid.sum(axis=1) == pytest.approx(np.ones(len(grid)))
    assert grid.min() == pytest.approx(1 / (3 * n))
    assert grid.mean(axis=0) == pytest.approx([1 / 3] * 3)


MAPS = {
    "identity": lambda q: q,
    "focal": partial(focal.focal_map, gamma=3.0),
    "to a corner": lambda q: np.eye(3)[q.argmax(axis=1)],
}


@pytest.mark.parametrize("name", sorted(MAPS))
def test_arrows_go_from_q_to_the_map_of_q(ax, name):
    plots.plot_map_arrows(MAPS[name], ax, n_steps=9)
    (arrows,) = (child for child in ax.get_children() if isinstance(child, Quiver))
    grid = simplex_grid(9)
    assert to_simplex(arrows.XY) == pytest.approx(grid, abs=1e-12)
    ends = to_simplex(arrows.XY + np.stack([arrows.U, arrows.V], axis=-1))
    assert ends == pytest.approx(MAPS[name](grid), abs=1e-12)
    assert (arrows.scale, arrows.angles, arrows.scale_units) == (1.0, "xy", "xy")
    assert rendered(ax)


def test_the_surface_is_the_largest_difference(ax):
    plots.plot_map_difference(MAPS["identity"], MAPS["focal"], ax, color_bar=True)
    surface = ax.collections[0]
    grid = simplex_grid(simplex.FINE)
    expected = [max(abs(a - b)) for a, b in zip(grid, MAPS["focal"](grid), strict=True)]
    assert np.asarray(surface.get_array()) == pytest.approx(np.array(expected))
    assert surface.get_clim() == pytest.approx((0, max(expected)))
    assert len(ax.figure.axes) == 2
    assert rendered(ax)


def test_equal_maps_and_a_shared_limit(ax):
    plots.plot_map_difference(MAPS["identity"], MAPS["identity"], ax, limit=0.1)
    surface = ax.collections[0]
    assert surface.get_clim() == (0.0, 0.1)
    assert surface.get_array().max() == 0.0
    assert len(ax.figure.axes) == 1
    assert rendered(ax)


def squares(probs, labels):
    return ((probs - np.eye(3)[labels]) ** 2).sum(axis=-1)


LOSSES = {
    "squares": squares,
    "log": partial(focal.proper_focal_loss, gamma=0.0),
    "proper focal": partial(focal.proper_focal_loss, gamma=3.0),
}


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("posterior", [(0.55, 0.3, 0.15), (1.0, 0.0, 0.0), (1 / 3, 1 / 3, 1 / 3)])
def test_isolines_hold_the_smallest_risks(ax, name, posterior):
    plots.plot_risk_isolines(LOSSES[name], posterior, ax, percentiles=(20, 3))
    (lines,) = (child for child in ax.get_children() if isinstance(child, ContourSet))
    risk = simplex.conditional_risk(LOSSES[name], posterior, simplex_grid(simplex.FINE))
    one = 1 / len(risk)
    for level, share in zip(lines.levels, (0.03, 0.2), strict=True):
        assert (risk < level).mean() - one <= share <= (risk <= level).mean() + one
    for path, level in zip(lines.get_paths(), lines.levels, strict=True):
        there = np.clip(to_simplex(path.vertices), 1e-9, 1)
        there /= there.sum(axis=1, keepdims=True)
        on_line = simplex.conditional_risk(LOSSES[name], posterior, there)
        assert np.median(np.abs(on_line - level)) < 0.01 * (risk.max() - risk.min())
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["3%", "20%"]
    (cross,) = (line for line in ax.lines if line.get_marker() == "x")
    assert to_simplex(cross.get_xydata())[0] == pytest.approx(posterior, abs=1e-12)
    assert rendered(ax)


def test_a_flat_loss_has_no_lines(ax):
    plots.plot_risk_isolines(lambda q, y: np.ones(len(q)), (0.5, 0.3, 0.2), ax)
    assert not any(isinstance(child, ContourSet) for child in ax.get_children())
    assert rendered(ax)


def test_a_map_that_gives_no_probabilities_is_refused(ax):
    with pytest.raises(ValueError, match="sum to 1"):
        plots.plot_map_arrows(lambda q: 2 * q, ax)
    with pytest.raises(ValueError, match="sum to 1"):
        plots.plot_risk_isolines(squares, (0.5, 0.5, 0.5), ax)


def grouped():
    """An evaluation by group, of which one is off."""
    rng = np.random.default_rng(0)
    p, sex = rng.uniform(0.2, 0.8, 1200), rng.choice(["f", "m"], 1200)
    labels = (rng.random(1200) < p - 0.15 * (sex == "m")).astype(int)
    groups = {"sex": sex}
    metrics = ["prevalence_gap"]
    return calibrant.evaluate(p, labels, groups=groups, metrics=metrics, n_resamples=50).by_group


def test_groups_that_are_off_are_marked_and_all_are_named():
    found = grouped()
    axes = plots.plot_groups(found, Figure().subplots())
    assert [text.get_text() for text in axes.get_yticklabels()] == ["sex=f", "sex=m"]
    dots = [line for line in axes.lines if len(line.get_xdata()) == 1]
    gaps = [100 * group.evaluation["prevalence_gap"].value for group in found.groups]
    assert [float(dot.get_xdata()[0]) for dot in dots] == gaps
    assert [dot.get_color() for dot in dots] == [palette.INK, palette.OVER]


PLOTS = {
    "groups": partial(plots.plot_groups, grouped()),
    "reliability": partial(plots.plot_reliability, reliability_curve(*OVER)),
    "overlay": partial(plots.plot_reliability_overlay, {"model": reliability_curve(*OVER)}),
    "histogram": partial(plots.plot_confidence_histogram, confidence_histogram(*OVER)),
    "risk": partial(plots.plot_risk_coverage, {"model": risk_coverage_curve(*OVER)}),
    "arrows": partial(plots.plot_map_arrows, MAPS["focal"], n_steps=3),
    "difference": partial(plots.plot_map_difference, MAPS["identity"], MAPS["focal"]),
    "isolines": partial(plots.plot_risk_isolines, squares, (0.5, 0.3, 0.2)),
    "phi": partial(plots.plot_phi, gamma=3.0),
    "binary map": partial(plots.plot_binary_map, gamma=3.0),
    "relation": partial(plots.plot_confidence_relation, gamma=3.0, n_classes=3),
}


@pytest.fixture
def pyplot():
    """pyplot without figures."""
    from matplotlib import pyplot

    pyplot.close("all")
    yield pyplot
    pyplot.close("all")


@pytest.mark.parametrize("name", sorted(PLOTS))
def test_a_plot_is_drawn_on_the_given_axes_or_the_current_ones(pyplot, ax, name):
    assert PLOTS[name](ax=ax) is ax
    assert ax.has_data()
    assert rendered(ax)
    assert not pyplot.get_fignums()
    current = pyplot.gca()
    assert PLOTS[name]() is current
    assert current.has_data()


def test_every_plot_function_takes_the_axes_last():
    drawn = {plot.func.__name__ for plot in PLOTS.values()}
    assert drawn == {name for name in plots.__all__ if name.startswith("plot_")}


def test_importing_plots_does_not_import_pyplot():
    code = "import sys, calibrant.plots; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
