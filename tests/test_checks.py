"""Checks of arguments."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from rfa import geometric_median
from rfa._checks import check_number
from rfa.errors import InvalidValueError


@pytest.mark.parametrize(
    "value",
    [10**400, -(10**400), 10**5000, Fraction(10**400)],
    ids=["large", "negative", "too long to print", "fraction"],
)
def test_a_number_that_no_float_holds_is_refused_in_few_words(value: Any) -> None:
    with pytest.raises(InvalidValueError) as error:
        check_number("nu", value, positive=True)
    assert str(error.value) == "nu must be a positive number below 1.8e+308"


@pytest.mark.parametrize("value", [10**310, float("inf"), float("nan"), -1, True])
def test_the_median_promises_an_error_of_values(value: Any) -> None:
    with pytest.raises(InvalidValueError, match="nu must be"):
        geometric_median(np.eye(3), nu=value)


@pytest.mark.parametrize("value", [0, 10**300, 0.5, np.float32(2), Fraction(1, 3)])
def test_numbers_are_numbers(value: Any) -> None:
    check_number("nu", value)
