"""The demands of a device that follow from the identities that it knows, if it states none."""

from __future__ import annotations

import math

from rfa.secagg.errors import ParameterError
from rfa.secagg.security.parameters import LEAST_HONEST


def derived_demands(identities: int, *, is_wary: bool) -> tuple[int, int]:
    """Return the least size of a cohort, and the colluders that it must withstand.

    A semi-honest server chooses the number of colluders. A malicious one chooses the cohort, so the
    cohort must have nine tenths of all devices, and withstand a tenth of them.

    Args:
        identities: the number of identities that the device knows.
        is_wary: whether it assumes that the server is malicious.

    Raises:
        ParameterError: if the server is malicious, and the device knows no identities.
    """
    if not is_wary:
        return LEAST_HONEST, 0
    if not identities:
        msg = (
            "a malicious server chooses the cohort, and can choose all colluders: give "
            "Policy(min_cohort=..., num_colluders=...), counted among all devices, or the "
            "device the identities of all of them"
        )
        raise ParameterError(msg)
    return max(LEAST_HONEST, math.ceil(9 * identities / 10)), math.ceil(identities / 10)
