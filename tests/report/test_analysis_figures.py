"""Every figure of an analysis is drawn, also of the least there can be, twice the same, and without a warning."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from fedsol.analysis.base import Series
from fedsol.analysis.cost import CostAnalysis, Costs, MethodCost
from fedsol.analysis.divergence import Divergence, DivergenceAnalysis
from fedsol.analysis.landscape import Landscape, LandscapeAnalysis
from fedsol.analysis.orthogonality import (
    LocalSteps,
    Measure,
    Orthogonality,
    OrthogonalityAnalysis,
    OverRounds,
    RoundOrthogonality,
)
from fedsol.analysis.preservation import Forgetting, ForgettingAnalysis, Preservation, PreservationAnalysis
from fedsol.analysis.strength import LayerStrength, LayerStrengths, StrengthAnalysis
from fedsol.analysis.toy import ToyAnalysis, ToySettings, toy
from fedsol.errors import InputError
from fedsol.plots import samples as samples_figure
from fedsol.plots.panels import bar_panel, number_panel, short_layer
from fedsol.plots.samples import ImageSet, draw_samples
from fedsol.plots.style import line_look, new_figure
from fedsol.plots.sweep import draw_factors, draw_sweep


def orthogonality(label):
    client = LocalSteps(0, (None, 0.5, -0.2), (0.0, 0.1, 0.3), (1.0, 0.9, 0.8))
    return Orthogonality(label, 1.0, 5, Measure(), (client, LocalSteps(1, (None,), (0.0,), (1.0,))))


def divergence_at(number, clients=2):
    ids = tuple(range(clients))
    between = tuple(0.5 for _ in ids) if clients > 1 else ()
    layers = {"body.weight": 0.1, "head.a-very-long-name-of-a-layer.weight": 0.2}
    return Divergence(number, ids, tuple(0.3 + 0.1 * c for c in ids), between, layers, layers if between else {})


def preservation_at(number):
    return Preservation(
        number, 0.5, (0, 1), (0.3, 0.2), (0.5, 0.6), (0.9, 0.8), (0.5, None), (0.1, None), (0.5, 0.5), (0.4, 0.2)
    )


def strength_of():
    layers = {"body": LayerStrength(100, 0.05, 0.5, 0.1), "head": LayerStrength(10, 0.2, 0.6, None)}
    return LayerStrengths(3, "adaptive", (0,), layers)


def landscape_of(count):
    rows = tuple(tuple(0.5 + x * x + y * y for x in (-1.0, 0.0, 1.0)) for y in (-1.0, 0.0, 1.0))
    return Landscape(1, 10, tuple(float(5 - n) for n in range(count)), (-1.0, 0.0, 1.0), rows, 0.5)


def sweep_rows(**settings):
    keys = list(settings)
    points = [{}]
    for key in keys:
        points = [{**point, key: value} for point in points for value in settings[key]]
    return [
        {"settings": point, "label": str(point), "final_accuracy": {"mean": 0.1 * number % 1, "std": 0.02}}
        for number, point in enumerate(points)
    ], keys


def sweep_figure(path, failed=False, **settings):
    rows, keys = sweep_rows(**settings)
    if failed:
        rows[0] = {**rows[0], "final_accuracy": None}
    return draw_sweep(rows, keys, path, "sweep")


RUNS = [Series("fedavg", ((divergence_at(1), divergence_at(2)),)), Series("fedsol", ((divergence_at(1, 1),),) * 2)]
SCATTERED = [
    {"settings": {"a": a, "b": b}, "label": "", "final_accuracy": {"mean": a * b, "std": 0.0}}
    for a, b in ((0.1, 0.2), (0.3, 5.0), (0.6, 0.1))
]
COST = MethodCost("fedavg", 10, 10, 0, 0.1, 100, 0)

ANALYSES = {
    "orthogonality": (OrthogonalityAnalysis(), [orthogonality("a"), orthogonality("b")]),
    "orthogonality by round": (
        OverRounds(),
        [Series("a", ((RoundOrthogonality(1, 0, 3, None, 0.1), RoundOrthogonality(2, 0, 3, 0.5, 0.2)),))],
    ),
    "orthogonality of a step": (
        OrthogonalityAnalysis(),
        [Orthogonality("a", 1.0, 5, Measure(), (LocalSteps(1, (None,), (0.0,), (1.0,)),))],
    ),
    "orthogonality by round of some runs": (
        OverRounds(),
        [Series("scaffold", ((),)), Series("a", ((RoundOrthogonality(1, 0, 3, 0.5, 0.1),),))],
    ),
    "forgetting of some runs": (
        ForgettingAnalysis(),
        [
            Series("without a test set", (Forgetting((), (), ()),)),
            Series("a", (Forgetting((5, 10), ((0.1, None), (0.2, 0.3)), (0.0, 0.0)),)),
        ],
    ),
    "divergence over rounds": (DivergenceAnalysis(), RUNS),
    "divergence of a round": (DivergenceAnalysis(), [Series("a", ((divergence_at(1),),))]),
    "divergence of a client": (DivergenceAnalysis(), [Series("a", ((divergence_at(1, 1),),))]),
    "preservation over rounds": (
        PreservationAnalysis(),
        [Series("a", ((preservation_at(1), preservation_at(2)),)), Series("b", ((preservation_at(1),),))],
    ),
    "preservation of a round": (PreservationAnalysis(), [Series("a", ((preservation_at(1),),))]),
    "forgetting": (
        ForgettingAnalysis(),
        [Series("a", (Forgetting((1, 2), ((0.5, None), (0.6, None)), (0.0, 0.1)),))],
    ),
    "strength": (StrengthAnalysis(), [Series("a", (strength_of(),)), Series("b", (strength_of(),))]),
    "landscape": (LandscapeAnalysis(), {"a": landscape_of(5), "b": landscape_of(2)}),
    "four landscapes": (LandscapeAnalysis(), {name: landscape_of(5) for name in "abcd"}),
    "cost": (CostAnalysis(), Costs("cnn", 100, 50, 3, (COST, COST))),
    "toy": (ToyAnalysis(), toy(ToySettings(steps=20))),
    "toy from elsewhere": (ToyAnalysis(), toy(ToySettings(steps=20, minimum=(2.0, 1.0)))),
}


def written(name):
    """The figure of an analysis, written to a path without its suffix."""
    analysis, found = ANALYSES[name]
    return lambda path: analysis.write_figure(found, path.parent, "title")


FIGURES = {
    **{name: written(name) for name in ANALYSES},
    "sweep of a number": lambda path: sweep_figure(path, rho=(0.1, 1, 10)),
    "sweep with a failure": lambda path: sweep_figure(path, failed=True, rho=(0.1, 1, 10)),
    "sweep of many numbers": lambda path: sweep_figure(path, rho=tuple(range(12))),
    "sweep of a number by name": lambda path: sweep_figure(path, **{"algorithm.name": ("x", "y"), "lr": (0.1, 0.2)}),
    "sweep of two numbers": lambda path: sweep_figure(path, failed=True, rho=(0.1, 1), lr=(1, 2, 3)),
    "sweep of names": lambda path: sweep_figure(path, failed=True, name=("x", "y"), flag=(True, False)),
    "sweep of three numbers": lambda path: sweep_figure(path, a=(1, 2), b=(1, 2), c=(1, 2)),
    "search": lambda path: draw_sweep(SCATTERED, ["a", "b"], path, "search"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_written(tmp_path, name):
    picture, document = FIGURES[name](tmp_path / "figure")
    assert [picture.suffix, document.suffix] == [".png", ".pdf"]
    assert document.read_bytes().startswith(b"%PDF")
    with Image.open(picture) as image:
        assert 600 < image.width < 1700
        assert 300 < image.height < 1800
        assert len(image.convert("RGB").getcolors(maxcolors=1_000_000)) > 30


def repeated():
    """Every figure; `make test` repeats one of each kind, as all of a kind are written by the same code."""
    quick = ("divergence over rounds", "landscape", "sweep of two numbers")
    return [pytest.param(name, marks=[] if name in quick else pytest.mark.full) for name in FIGURES]


@pytest.mark.parametrize("name", repeated())
def test_a_figure_is_written_twice_the_same(tmp_path, name):
    first, second = FIGURES[name](tmp_path / "one" / "figure"), FIGURES[name](tmp_path / "two" / "figure")
    for path, other in zip(first, second, strict=True):
        assert path.read_bytes() == other.read_bytes()


def test_a_sweep_without_results_is_an_error_and_leaves_no_file(tmp_path):
    with pytest.raises(InputError, match=r"there is no"):
        draw_sweep([{"settings": {"a": 1}, "label": "", "final_accuracy": None}], ["a"], tmp_path / "figure", "")
    assert not list(tmp_path.iterdir())


def test_long_names_of_layers_are_shortened_in_the_middle():
    assert short_layer("body.0.weight") == "body.0.weight"
    assert short_layer("encoder.layers.11.attention.weight") == "encoder.lay…tention.weight"


def test_factors_share_their_lines(tmp_path):
    factors = {
        "epochs": {"fedavg": [(1, 0.4, 0.0), (5, 0.5, 0.1)], "fedsol": [(5, 0.6, 0.1)]},
        "rho": {"fedsol": [(2.0, 0.6, 0.1), (0.1, 0.5, 0.0)], "fedavg": []},
        "empty": {"fedavg": []},
    }
    one, _ = draw_factors(factors, tmp_path / "one", "some factors")
    two, _ = draw_factors(factors, tmp_path / "two", "some factors")
    assert one.read_bytes() == two.read_bytes()
    with Image.open(one) as picture:
        assert picture.size == (930, 540)  # two panels of 3.1 by 3.6 inches
    with pytest.raises(InputError, match="nothing to draw"):
        draw_factors({"empty": {"fedavg": []}}, tmp_path / "none", "")


def test_bars_of_one_method_share_its_color():
    axes = new_figure(3, 3).add_subplot()
    bars = {name: [(0.5, 0.1)] for name in ("a: before", "a: after", "b: before", "b: after")}
    patches = bar_panel(axes, ["all"], bars, "accuracy", same_color=2)
    colors = [to_hex(patch.get_facecolor()).upper() for patch in patches]
    assert colors == [line_look(number)["color"] for number in (0, 0, 1, 1)]
    assert len({patch.get_hatch() for patch in patches}) == 4


def test_a_line_over_numbers_has_its_look_and_its_places():
    axes = new_figure(3, 3).add_subplot()
    (line,) = number_panel(axes, {"b": [(10.0, 0.5, 0.1), (0.1, 0.4, 0.0)]}, "x", "y", ["a", "b"])
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([0.1, 10.0], [0.4, 0.5])
    assert line.get_color() == line_look(1)["color"]
    assert axes.get_xscale() == "log"


def test_examples_of_every_class(tmp_path):
    images = np.zeros((3, 1, 4, 4), dtype=np.uint8)
    images[1] = 100
    found = ImageSet(images, np.array([1, 0, 1]), ["first", "second", "none"])
    canvas = samples_figure._montage(found, 2)
    assert canvas.shape == (16, 10, 3)  # three rows of 4 pixels and two of 4, with 2 between them
    assert (canvas[:4, :4] == 100).all()
    assert (canvas[6:10, :4] == 0).all()
    assert (canvas[6:10, 6:] == 0).all()
    assert (canvas[:4, 6:] == 255).all()
    assert (canvas[12:] == 255).all()
    assert draw_samples({"one": found}, tmp_path / "one", "images")[0].is_file()
    with pytest.raises(InputError, match="no images"):
        draw_samples({}, tmp_path / "none", "images")
