"""The app of the server. What makes it robust and private is one line: the strategy."""

from flwr.app import MetricRecord
from flwr.serverapp import ServerApp

from flower_numpy import task
from rfa.flower import OneStepRFA  # before: from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid, context):
    """Train for some rounds."""
    config = context.run_config
    x, y = task.load_part(task.SERVER, test=True)

    def evaluate(t, arrays):
        metrics = task.test_model(task.from_record(arrays), x, y)
        print(f"round {t}: accuracy {100 * metrics['accuracy']:.1f} %", flush=True)
        return MetricRecord(metrics)

    options = {"fraction_evaluate": config["fraction-evaluate"]}
    strategy = OneStepRFA(**options)  # before: strategy = FedAvg(**options)
    strategy.start(
        grid=grid,
        initial_arrays=task.to_record(task.first_model()),
        num_rounds=config["num-server-rounds"],
        evaluate_fn=evaluate,
    )
