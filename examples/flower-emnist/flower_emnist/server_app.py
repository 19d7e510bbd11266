"""The app of the server. What makes it robust and private is one line: RFA in place of FedAvg."""

from pathlib import Path

from flwr.app import MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from flower_emnist.task import first_model, from_record, load_part, test_model, to_record
from rfa.flower import (
    RFA,
    OneStepRFA,
    SecureFedAvg,
    SecureStrategy,
    ServerModel,
    Terms,
    read_identities,
)

app = ServerApp()


@app.main()
def main(grid, context):
    """Train for some rounds."""
    config = context.run_config
    x, y = load_part(config, 0, 1, test=True)

    def evaluate(t, arrays):
        metrics = test_model(from_record(arrays), x, y)
        loss, accuracy = metrics["loss"], 100 * metrics["accuracy"]
        print(f"round {t}: loss {loss:.2f}, accuracy {accuracy:.1f} %", flush=True)
        return MetricRecord(metrics)

    strategy = choose_strategy(config)
    strategy.start(
        grid=grid,
        initial_arrays=to_record(first_model()),
        num_rounds=config["num-server-rounds"],
        evaluate_fn=evaluate,
    )


def choose_strategy(config):
    """The strategy that the run config names; an app of yours has one of these lines."""
    options = {
        "fraction_train": config["fraction-train"],
        "fraction_evaluate": config["fraction-evaluate"],
    }
    if config["strategy"] == "fedavg":
        return FedAvg(**options)
    options |= {"checkpoint": config["checkpoint"] or None, "example_cap": 10_000}
    options["max_share"] = config["max-share"]
    options["epsilon"] = config["epsilon"] or None  # noise, for a limit to what rounds tell
    if config["identities"]:  # devices do not trust the server: they sign their keys
        options["identities"] = read_identities(Path(config["identities"]))
        options["terms"] = Terms(server_model=ServerModel.MALICIOUS)
    nu = config["nu"] or None  # 0 stands for a radius that is learned
    match config["strategy"]:
        case "rfa":
            return RFA(budget=config["budget"], nu=nu, **options)
        case "one-step":
            return OneStepRFA(nu=nu, **options)
        case "secure-fedavg":
            return SecureFedAvg(**options)
        case text:  # any private aggregator, such as rfa:schedule=sub-cohorts, or your own
            return SecureStrategy(text, **options)
