"""thm:rfa:convergence with the constants that its proof gives, measured on least squares.

What a check of the proof (with C_theta = (1 - 2 theta)^-2) found:

- The robustness of the median. Let g(v) = sum_i |v - w_i| over m devices, at most theta m of them
  corrupted, and g(v) <= min g + eps. Comparing v with any point z gives
  (1 - 2 theta) m |v - z| <= 2 sum_{honest} |w_i - z| + eps, hence
  |v - z|^2 <= 8 C_theta mean_{honest} |w_i - z|^2 + 2 C_theta eps^2 / m^2. The constants 1/2, 128
  and 16 of the text follow with it. eps is that of the sum, not of the mean, of the distances.
- The q in the bound on a local model stands for 1.
- Round t takes w^(t) to w^(t+1), so the noise of the T rounds adds up to
  sum_{t=0}^{T-1} 2^-(T-1-t) / tau_t. The sum that is printed pairs the weight of a round with the
  steps of the next; its value for tau_t = 2^t tau, 2^-(T-1) T / tau, is that of the sum here.
- |w* - w_i*| <= Omega does not follow. It takes |H^-1 H_j|_2 <= Omega_X, but Omega_X is the largest
  eigenvalue of H^-1 H_j, which is its norm only if H_j and H commute. If not, no constant C is
  enough (`leastsquares.twisted`). Here Omega_X is max_j |H^-1 H_j|_2, which does follow, and which
  is the paper's where covariances commute.
- The rest holds as it is printed, with room to spare.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rfa.errors import InvalidValueError
from rfa.lab.paper import leastsquares as ls
from rfa.lab.paper.leastsquares import Paths, Plan, Problem
from rfa.lab.randomness import stream
from rfa.lab.report.exhibit import Exhibit, Line, Panel, Spread, Table
from rfa.theory import Constants, bound, devices_needed, lower_bound, steps_needed

DELTA = 0.1
N, D = 1000, 4
START = np.full(D, 2.0)
QUARTER = 0.25
TRIALS = 20_000


def constants_of(problem: Problem) -> Constants:
    """The constants of a problem, exactly."""
    return Constants(
        d=problem.d,
        sigma2=float(problem.sigma.max() ** 2),
        mu=problem.mu,
        r_squared=problem.r_squared,
        omega_x=problem.omega_x_norm,
        omega_y=problem.omega_y,
    )


def event_frequency(rho: float, theta: float, m: int, rounds: int, trials: int = TRIALS) -> float:
    """How often |S_t cap C| <= theta m in all rounds, of N devices by simulation."""
    bad = round(rho * N)
    drawn = stream(m, "event", rounds).hypergeometric(bad, N - bad, m, (trials, rounds))
    return float((drawn <= theta * m + ls.SLACK).all(axis=1).mean())


@dataclass(frozen=True)
class Size:
    """How much of the check is done: runs, rounds T, and the grids."""

    repeats: int
    rounds: int
    rhos: Sequence[float]
    omegas: Sequence[float]


SIZES = {
    "tiny": Size(2, 2, (0.0, QUARTER), (0.5, 2.0)),
    "quick": Size(4, 5, (0.0, 0.1, QUARTER, 0.4), (0.25, 1.0, 4.0)),
    "short": Size(10, 7, (0.0, 0.1, QUARTER, 0.4), (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)),
    "full": Size(20, 9, (0.0, 0.1, QUARTER, 0.4), (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)),
}


@dataclass(frozen=True)
class Case:
    """A problem, how Algorithm 1 is run on it, and what came of it."""

    constants: Constants
    plan: Plan
    paths: Paths

    def bounds(self) -> list[float]:
        """The bound after 0, 1, ..., T rounds."""
        taus, theta, eps = self.plan.taus, self.plan.theta, self.paths.eps / self.plan.m
        start = float(self.paths.errors[0, 0])
        return [
            bound(self.constants, delta0=start, theta=theta, taus=taus[:t], eps_over_m=eps)
            for t in range(len(taus) + 1)
        ]

    def spreads(self) -> list[Spread]:
        """The errors after 0, 1, ..., T rounds of the runs for which E held."""
        kept = self.paths.errors[self.paths.held]
        return [Spread([float(value) for value in column]) for column in kept.T]

    def last_numbers(self) -> list[float]:
        """The mean error after the last round, the highest, and the bound."""
        last = self.spreads()[-1]
        return [last.mean, last.high, self.bounds()[-1]]


def plan_for(constants: Constants, rho: float, size: Size, *, doubling: bool = True) -> Plan:
    """Return the smallest m and tau of the theorem, with theta halfway between rho and 1/2."""
    theta = (rho + 1 / 2) / 2
    tau = steps_needed(constants, theta)
    taus = tuple(tau * 2**t if doubling else tau for t in range(size.rounds))
    m = devices_needed(rho, theta, size.rounds, DELTA)
    return Plan(m, taus, theta, repeats=size.repeats)


def measure(problem: Problem, rho: float, plan: Plan, constants: Constants | None = None) -> Case:
    """Run a plan against a random rho share of corrupted devices."""
    paths = ls.play(problem, plan, START, ls.draw_liars(problem, rho))
    return Case(constants or constants_of(problem), plan, paths)


def worse_world(rho: float, omega_y: float, size: Size) -> tuple[Case, float]:
    """The case of the worse of `two_worlds`, and the lower bound rho^2 Omega_{Y|X}^2."""
    *worlds, shown = ls.two_worlds(N, D, rho, omega_y)
    plan = dataclasses.replace(plan_for(constants_of(worlds[0]), rho, size), attack="")
    cases = [
        Case(constants_of(world), plan, ls.play(world, plan, START, ls.liars(N, rho, n), shown))
        for n, world in enumerate(worlds)
    ]
    return max(cases, key=lambda case: case.spreads()[-1].mean), lower_bound(rho, omega_y)


def exhibits(size: str) -> Exhibit:
    """The check of the theorem: tiny, quick, short or full."""
    if size not in SIZES:
        msg = f"size must be one of {', '.join(SIZES)}, not {size!r}"
        raise InvalidValueError(msg)
    return Exhibit(
        name="theorem",
        title="The convergence theorem on least squares",
        claim="The squared error stays below the bound of the proof, whatever corrupted devices "
        "send; its floor grows with the square of the heterogeneity, and is none without it.",
        paper="Theorem 1, thm:rfa:convergence",
        panels=list(_panels(SIZES[size])),
        tables=list(_tables(SIZES[size])),
        data=["synthetic: least squares with a known optimum"],
    )


def _panels(size: Size) -> Iterator[Panel]:
    for omega_y in (0.0, 1.0):
        problem = ls.two_groups(N, D, omega_y=omega_y)
        constants = constants_of(problem)
        plans = {rho: plan_for(constants, rho, size) for rho in size.rhos}
        cases = {f"rho = {rho:g}": measure(problem, rho, plan) for rho, plan in plans.items()}
        yield _path_panel(f"Omega = {constants.omega:.3g}", cases)
    problem = ls.two_groups(N, D, omega_y=0.0)
    constants = constants_of(problem)
    cases = {
        f"{name} tau": measure(
            problem, QUARTER, plan_for(constants, QUARTER, size, doubling=name == "doubling")
        )
        for name in ("doubling", "constant")
    }
    yield _path_panel("constant and doubling local steps, Omega = 0, rho = 1/4", cases)
    yield _floor_panel(size)
    cases = {f"rho = {rho:g}": _unequal(rho, size) for rho in size.rhos if rho <= QUARTER}
    yield _path_panel("unequal weights, c_1 / c_2 = 2", cases)


def _unequal(rho: float, size: Size) -> Case:
    problem = ls.two_groups(N, D, omega_y=1.0)
    alpha = np.where(np.arange(N) < N // 2, 2.0, 1.0) / (1.5 * N)
    constants = constants_of(problem).reweighted(alpha)
    plan = plan_for(constants, rho, size)
    return measure(ls.reweighted(problem, alpha), rho, plan, constants)


def _path_panel(title: str, cases: dict[str, Case]) -> Panel:
    lines: list[Line] = []
    for label, case in cases.items():
        x = list(range(len(case.plan.taus) + 1))
        note = f"m = {case.plan.m}, devices far away"
        lines.append(Line.over_seeds(label, x, case.spreads(), note))
        lines.append(Line.flat(f"{label}, bound", x, case.bounds(), dashed=True))
    return Panel(title, "rounds", "squared distance from w*", lines, log_y=True)


def _floor_panel(size: Size) -> Panel:
    x = size.omegas
    worlds = [worse_world(QUARTER, omega, size) for omega in x]
    spreads = [case.spreads()[-1] for case, _ in worlds]
    upper = [case.bounds()[-1] for case, _ in worlds]
    lines = [
        Line.over_seeds("RFA, the worse of two worlds", x, spreads),
        Line.flat("no algorithm is below", x, [lower for _, lower in worlds], dashed=True),
        Line.flat("the theorem's bound", x, upper, dashed=True),
    ]
    title = "the floor, rho = 1/4, two worlds that look alike"
    return Panel(title, "Omega", "squared distance from w*", lines, log_x=True, log_y=True)


def _tables(size: Size) -> Iterator[Table]:
    head = ["rho", "theta", "m", "rounds", "frequency of E", "1 - delta"]
    rows = [_event_row(rho, size) for rho in size.rhos]
    yield Table("The event E: no round has more than theta m corrupted devices", head, rows)
    head = ["rho", "attack", "squared error", "highest", "bound"]
    yield Table("Attacks, after the last round", head, list(_attack_rows(size)))
    head = ["Weiszfeld steps", "eps / m", "squared error", "highest", "bound"]
    yield Table("Approximate medians, rho = 1/4, Omega = 0", head, list(_eps_rows(size)))
    head = ["smallest eigenvalue of H", "Omega as printed", "with norms", "max |w* - w_i*|"]
    yield Table("Covariances that do not commute", head, [_twist(10.0**-k) for k in range(1, 5)])


def _event_row(rho: float, size: Size) -> list[float]:
    plan = plan_for(constants_of(ls.two_groups(N, D, omega_y=1.0)), rho, size)
    often = event_frequency(rho, plan.theta, plan.m, size.rounds)
    return [rho, plan.theta, plan.m, size.rounds, often, 1 - DELTA]


def _attack_rows(size: Size) -> Iterator[list[str | float]]:
    problem = ls.two_groups(N, D, omega_y=1.0)
    for rho in filter(None, size.rhos):
        plan = plan_for(constants_of(problem), rho, size)
        for attack in ls.ATTACKS:
            case = measure(problem, rho, dataclasses.replace(plan, attack=attack))
            yield [rho, attack, *case.last_numbers()]


def _eps_rows(size: Size) -> Iterator[list[str | float]]:
    problem = ls.two_groups(N, D, omega_y=0.0)
    plan = plan_for(constants_of(problem), QUARTER, size)
    for steps in (1, 3, 10, 0):
        case = measure(problem, QUARTER, dataclasses.replace(plan, steps=steps))
        name = str(steps) if steps else "to convergence"
        yield [name, case.paths.eps / plan.m, *case.last_numbers()]


def _twist(flat: float) -> list[float]:
    problem = ls.twisted(flat)
    off = float(np.linalg.norm(problem.optima - problem.minimizer, axis=1).max())
    return [flat, problem.omega_x * problem.omega_y, problem.omega_x_norm * problem.omega_y, off]
