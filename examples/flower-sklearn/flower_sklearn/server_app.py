"""The app of the server. What makes it robust and private is one line: the strategy."""

from flwr.app import MetricRecord
from flwr.serverapp import ServerApp

from flower_sklearn import task
from rfa.flower import OneStepRFA  # before: from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid, context):
    """Train for some rounds."""
    config = context.run_config
    x, y = task.load_test()

    def evaluate(t, arrays):
        accuracy = float(task.load_model(arrays).score(x, y))
        print(f"round {t}: accuracy {100 * accuracy:.1f} %", flush=True)
        return MetricRecord({"accuracy": accuracy})

    options = {"fraction_evaluate": config["fraction-evaluate"]}
    strategy = OneStepRFA(**options)  # before: strategy = FedAvg(**options)
    strategy.start(
        grid=grid,
        initial_arrays=task.first_arrays(),
        num_rounds=config["num-server-rounds"],
        evaluate_fn=evaluate,
    )
