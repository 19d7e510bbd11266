"""Points in all their forms, and the errors for what is no cloud of points."""

from __future__ import annotations

from collections import OrderedDict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import rfa

torch: Any = pytest.importorskip("torch")


def geometric_median(points: Any, weights: Any = None, **options: Any) -> Any:
    """The function under test, for arguments and answers of all types."""
    return rfa.geometric_median(points, weights, **options)


RNG = np.random.default_rng(0)
POINTS = RNG.standard_normal((7, 10))
MEDIAN = geometric_median(POINTS).point
LARGE = RNG.standard_normal((30, 3000)).astype(np.float32)


def leaves(point: Any) -> list[Any]:
    """The arrays of a point, whatever its form."""
    return list(point) if type(point) in {list, tuple} else [point]


def model(row: Any) -> list[Any]:
    return [row[:6].reshape(2, 3), row[6:9], row[9:].reshape(())]


def test_a_sequence_of_vectors() -> None:
    for points in (list(POINTS), tuple(POINTS), POINTS.tolist(), [r.tolist() for r in POINTS]):
        result = geometric_median(points).point
        assert isinstance(result, np.ndarray)
        assert result == pytest.approx(MEDIAN)


def test_arrays_of_more_dimensions_keep_their_shape() -> None:
    result = geometric_median(POINTS.reshape(7, 2, 5)).point
    assert result == pytest.approx(MEDIAN.reshape(2, 5))
    result = geometric_median(list(POINTS.reshape(7, 2, 5))).point
    assert result == pytest.approx(MEDIAN.reshape(2, 5))


def test_models_as_lists_and_tuples() -> None:
    for kind in (list, tuple):
        result = geometric_median([kind(model(row)) for row in POINTS])
        assert result.point.__class__ is kind
        assert [leaf.shape for leaf in leaves(result.point)] == [(2, 3), (3,), ()]
        flat = np.concatenate([leaf.reshape(-1) for leaf in leaves(result.point)])
        assert flat == pytest.approx(MEDIAN)
        assert result.weights == pytest.approx(geometric_median(POINTS).weights)


def test_models_as_dicts_in_any_order_of_keys() -> None:
    models = [dict(zip("abc", model(row), strict=True)) for row in POINTS]
    models[3] = dict(reversed(models[3].items()))
    result = geometric_median(models).point
    assert list(result) == ["a", "b", "c"]
    assert result["a"] == pytest.approx(MEDIAN[:6].reshape(2, 3))
    assert result["c"] == pytest.approx(MEDIAN[9])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
def test_the_type_is_kept(dtype: Any) -> None:
    typed: Any = POINTS.astype(dtype)
    for points in (typed, list(typed), [model(row) for row in typed]):
        point = geometric_median(points).point
        leaf = leaves(point)[0]
        assert leaf.dtype == dtype
        assert leaf.reshape(-1)[:6] == pytest.approx(MEDIAN[:6], abs=1e-2)


def test_large_points_of_every_type_and_form_agree() -> None:
    expected = geometric_median(LARGE.astype(np.float64)).point
    forms = [
        LARGE,
        list(LARGE),
        np.asfortranarray(LARGE),
        np.repeat(LARGE, 2, axis=1)[:, ::2],
        [[row[:1000].reshape(10, 100), row[1000:]] for row in LARGE],
        [[row[:1000], row[1000:].astype(np.float64)] for row in LARGE],
        torch.from_numpy(LARGE),
    ]
    for form in forms:
        point = geometric_median(form).point
        flat = np.concatenate([np.asarray(leaf).reshape(-1) for leaf in leaves(point)])
        assert np.linalg.norm(flat - expected) < 1e-5 * np.linalg.norm(expected)
    halves = geometric_median(LARGE.astype(np.float16)).point
    assert halves.dtype == np.float16
    assert np.linalg.norm(halves - expected) < 3e-3 * np.linalg.norm(expected)


def test_points_are_not_changed() -> None:
    points = LARGE.copy()
    choices: list[Any] = [{}, {"steps": 3, "start": "mean"}, {"steps": 2, "start": LARGE[1]}]
    for options in choices:
        geometric_median(points + 100, **options)
        geometric_median(points, **options)
        geometric_median(list(points), **options)
    assert np.array_equal(points, LARGE)


def test_the_answer_shares_no_memory_with_the_points() -> None:
    points = np.array([[0.0, 0.0], [1.0, 1.0], [9.0, 9.0]])
    geometric_median(points).point[:] = 7
    assert points[1].tolist() == [1, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_torch_tensors(dtype: Any) -> None:
    points = torch.from_numpy(POINTS).to(dtype).requires_grad_()
    for form in (points, list(points), [model(row) for row in points]):
        point = geometric_median(form).point
        leaf = leaves(point)[0].reshape(-1)[:6]
        assert leaf.dtype == dtype
        assert leaf.device == points.device
        assert not leaf.requires_grad
        assert leaf.double().numpy() == pytest.approx(MEDIAN[:6], abs=3e-2)


def test_state_dicts_load_back() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    states: list[Any] = []
    for count in (5, 5, 5, 1_000_000):
        state = OrderedDict((k, v.clone()) for k, v in net.state_dict().items())
        for key, value in state.items():
            state[key] = value + torch.randn_like(value) if value.is_floating_point() else value
        state["1.num_batches_tracked"] = torch.tensor(count)
        states.append(state)
    result = geometric_median(states).point
    assert result.__class__ is OrderedDict
    assert result["1.num_batches_tracked"].dtype == torch.int64
    assert result["1.num_batches_tracked"].item() == 5
    net.load_state_dict(result)


def test_integer_buffers_have_no_part_in_the_distances() -> None:
    models = [[row, np.array([i, 7 * i])] for i, row in enumerate(POINTS)]
    result = geometric_median(models)
    assert result.point[0] == pytest.approx(MEDIAN)
    assert result.point[1].tolist() == [3, 21]
    weighted = geometric_median(models, [1, 1, 1, 1, 1, 1, 10])
    assert weighted.point[1].tolist() == [6, 42]


def test_integer_points_are_numbers() -> None:
    result = geometric_median([[0, 0], [1, 1], [5, 5]]).point
    assert result.dtype == np.float64
    assert result.tolist() == [1, 1]
    assert geometric_median(torch.tensor([[0, 0], [1, 1], [5, 5]])).point.dtype == torch.float64


def test_a_start_in_the_form_of_the_points() -> None:
    flat = geometric_median(POINTS, nu=0.1, steps=2, start=POINTS[0]).point
    models = [model(row) for row in POINTS]
    for start in (models[0], POINTS[0], torch.from_numpy(POINTS[0])):
        result = geometric_median(models, nu=0.1, steps=2, start=start).point
        assert result[0].reshape(-1) == pytest.approx(flat[:6])


def test_bad_points_are_named_or_dropped() -> None:
    for points in (POINTS.copy(), LARGE.copy()):
        points[2, 3], points[5, 0] = np.nan, -np.inf
        for form in (points, list(points), torch.from_numpy(points)):
            with pytest.raises(ValueError, match=r"points \[2, 5\] are not finite.*on_bad='drop'"):
                geometric_median(form)
            result = geometric_median(form, on_bad="drop")
            assert result.dropped == (2, 5)
            kept = np.delete(points, [2, 5], axis=0)
            expected = geometric_median(kept).point
            assert np.asarray(result.point) == pytest.approx(expected, rel=1e-5, abs=1e-6)
            assert result.weights[[2, 5]].tolist() == [0, 0]
            assert len(result.weights) == len(points)
    with pytest.raises(ValueError, match="no finite point with a positive weight is left of 3"):
        geometric_median(np.full((3, 2), np.nan), on_bad="drop")
    with pytest.raises(ValueError, match="no finite point with a positive weight is left of 2"):
        geometric_median([[np.nan], [1.0]], [1, 0], on_bad="drop")


def test_too_large_to_square_counts_as_bad() -> None:
    points = POINTS.copy()
    points[1] = 1e200
    with pytest.raises(ValueError, match=r"points \[1\] are not finite"):
        geometric_median(points)
    assert geometric_median(points, on_bad="drop").dropped == (1,)


NO_CLOUDS: list[tuple[Any, str]] = [
    (np.zeros((0, 3)), "no points in an array of shape \\(0, 3\\)"),
    ([], "there are no points"),
    (np.zeros((3, 0)), "no floating-point coordinates"),
    (np.zeros(3), "one row for each point, not shape \\(3,\\).*\\(m, 1\\)"),
    (np.float64(3.0), "sequence of points, not float64"),
    ("abc", "sequence of points, not str"),
    ([[1.0, 2.0], [3.0]], "point 1 has shape \\(1,\\), where the first point has \\(2,\\)"),
    ([[1.0, [2.0]]], "point 0 is not an array of numbers"),
    ([np.zeros(2), None], "point 1 holds object values"),
    (np.zeros((2, 2), complex), "holds complex128 values, where real numbers are needed"),
    ([["a", "b"]], "holds <U1 values"),
    ([[np.zeros(2)], [np.zeros(3)]], "point 1, array 0 has shape \\(3,\\)"),
    ([[np.zeros(2)], [np.zeros(2), np.zeros(1)]], "point 1 has 2 arrays, .* first point has 1"),
    ([[np.zeros(2)], {"a": np.zeros(2)}], "point 1 is a dict, where the first point is a list"),
    ([{"a": np.zeros(2)}, [np.zeros(2)]], "point 1 is a list, where the first point is a dict"),
    ([{"a": np.zeros(2)}, {"b": np.zeros(2)}], "do not share the keys .*'a'.*'b'"),
    ([[np.array([1, 2])]], "no floating-point coordinates"),
    (
        [[np.ones(2), np.array([1])], [np.ones(2), np.array([np.nan])]],
        "point 1, array 1 holds float64 values, where the first point has whole numbers",
    ),
    (np.ma.masked_array(np.zeros((2, 2)), mask=True), "is a masked array"),
    (torch.zeros((2, 2), device="meta"), "is not an array of numbers"),
    (np.full((3, 2), 1e-200), "must not all be smaller than 1e-140"),
]


@pytest.mark.parametrize(("points", "message"), NO_CLOUDS)
def test_what_is_no_cloud_is_refused(points: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        geometric_median(points)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2], "one number for each of the 7 points, not shape \\(2,\\)"),
        (3.0, "not shape \\(\\)"),
        ([1, 1, 1, -2, 1, 1, 1], "weights\\[3\\] is -2.0"),
        ([1, 1, 1, 1, 1, np.nan, 1], "weights\\[5\\] is nan"),
        ([1, 1, 1, 1, 1, 1, np.inf], "weights\\[6\\] is inf"),
        ([0] * 7, "must not all be zero"),
        (["a"] * 7, "weights holds <U1 values"),
    ],
)
def test_weights_without_a_meaning_are_refused(weights: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        geometric_median(POINTS, weights)


def test_weights_may_be_tensors_and_of_any_size() -> None:
    expected = geometric_median(POINTS, range(1, 8)).point
    for weights in (torch.arange(1, 8), np.arange(1, 8) * 1e-300, np.arange(1, 8) * 1e300):
        assert geometric_median(POINTS, weights).point == pytest.approx(expected)


def test_numbers_of_numpy_will_do_as_options() -> None:
    expected = geometric_median(POINTS, nu=0.5, steps=2, tol=1e-3).point
    fraction = geometric_median(POINTS, nu=Fraction(1, 2), steps=2).point
    assert fraction == pytest.approx(expected)
    options: Any = {"nu": np.float32(0.5), "steps": np.int64(2), "tol": np.float64(1e-3)}
    assert geometric_median(POINTS, **options).point == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nu": -1.0}, "nu must be a number from 0 on, not -1.0"),
        ({"nu": np.nan}, "nu must be a number from 0 on, not nan"),
        ({"nu": "big"}, "nu must be a number from 0 on, or rfa.Relative.* not 'big'"),
        ({"tol": -1}, "tol must be a number from 0 on"),
        ({"steps": 0}, "steps must be a whole number from 1 on, not 0"),
        ({"steps": 2.5}, "steps must be a whole number from 1 on, not 2.5"),
        ({"steps": True}, "steps must be a whole number"),
        ({"steps": 2, "start": "origin"}, "'zero', 'mean' or a point, not 'origin'"),
        ({"steps": 2, "start": np.zeros(3)}, "start has shape \\(3,\\)"),
        ({"steps": 2, "start": np.full(10, np.nan)}, "start must be finite"),
        ({"steps": 2, "early_stop": -1.0}, "early_stop must be"),
        ({"early_stop": 1e-6}, "early_stop goes with steps"),
        ({"start": np.zeros(10)}, "start goes with steps"),
        ({"on_bad": "ignore"}, "on_bad must be 'raise' or 'drop', not 'ignore'"),
    ],
)
def test_options_without_a_meaning_are_refused(options: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        geometric_median(POINTS, **options)
    with pytest.raises(ValueError, match="factor of nu"):
        rfa.Relative(-0.5)
