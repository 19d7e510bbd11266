"""The annotations of public signatures: they can be resolved, and say what is taken."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import numpy as np
import pytest

import rfa
from rfa import geometric_median, secagg
from rfa.aggregators import clear


@pytest.mark.parametrize("module", [rfa, clear, secagg], ids=lambda m: m.__name__)
def test_the_annotations_of_public_signatures_can_be_resolved(module: Any) -> None:
    for item in (getattr(module, name) for name in module.__all__):
        if inspect.isfunction(item):
            assert "return" in get_type_hints(item), item
        if inspect.isclass(item):
            get_type_hints(item)
            for method in vars(item).values():
                if inspect.isfunction(method):
                    get_type_hints(method)


def test_nu_is_what_its_annotation_says() -> None:
    assert get_type_hints(geometric_median)["nu"] == rfa.Smoothing | None
    points = np.random.default_rng(0).standard_normal((9, 4))
    assert geometric_median(points, nu=rfa.Relative(0.5)).converged
    for wrong in ("0.5", [0.5], rfa.Relative):
        with pytest.raises(rfa.InvalidTypeError, match=r"nu must be a number .* rfa.Relative"):
            geometric_median(points, nu=wrong)  # pyright: ignore[reportArgumentType]
