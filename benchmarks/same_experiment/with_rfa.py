"""Sign-flipping by a quarter of 20 clients against the geometric median, with rfa."""

import sys

from rfa import lab

result = lab.run(
    "digits-linear",
    aggregator=lab.RFA(budget=3, nu=0.1),
    corruption="sign-flip",
    rho=0.25,
    devices_per_round=20,
    rounds=100,
    seed=int(sys.argv[1]),
)
print(result.test_accuracy)
