"""RFA on Flower: robust and private aggregation in your app.

    from rfa.flower import RFA, robust_mod

    app = ClientApp(mods=[robust_mod])                                # on the device
    RFA().start(grid=grid, initial_arrays=arrays, num_rounds=3)       # on the server

The app's own `@app.train()` and `@app.evaluate()` stay as they are. See docs/flower.md.
"""

import importlib.util

if importlib.util.find_spec("flwr") is None:
    _MSG = "rfa.flower needs Flower: pip install 'rfa[flower]'"
    raise ImportError(_MSG)

from rfa.aggregators.server_optimizer import ServerOptimizer
from rfa.flower.constructors import RFA, OneStepRFA, SecureFedAvg
from rfa.flower.errors import NodesRefusedError, NothingDoneError, RunFailedError, TooFewNodesError
from rfa.flower.mod import RobustMod, robust_mod
from rfa.flower.options import SecureOptions, StrategyOptions
from rfa.flower.storage import create_identity
from rfa.flower.strategy import SecureStrategy
from rfa.secagg.security.identities import read_identities
from rfa.secagg.security.parameters import ServerModel
from rfa.secagg.security.policy import Policy
from rfa.secagg.security.terms import Terms

__all__ = [
    "RFA",
    "NodesRefusedError",
    "NothingDoneError",
    "OneStepRFA",
    "Policy",
    "RobustMod",
    "RunFailedError",
    "SecureFedAvg",
    "SecureOptions",
    "SecureStrategy",
    "ServerModel",
    "ServerOptimizer",
    "StrategyOptions",
    "Terms",
    "TooFewNodesError",
    "create_identity",
    "read_identities",
    "robust_mod",
]
