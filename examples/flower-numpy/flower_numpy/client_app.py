"""The app of a node. What makes it robust and private is one line: mods=[robust_mod]."""

from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flower_numpy import task
from rfa.flower import robust_mod  # before: nothing

app = ClientApp(mods=[robust_mod])  # before: app = ClientApp()


@app.train()
def train(message, context):
    """Train the model on the node's own data."""
    part, config = context.node_config["partition-id"], context.run_config
    x, y = task.load_part(part)
    model = task.from_record(message.content["arrays"])
    seed = [context.run_id, message.content["config"]["server-round"], part]
    trained = task.train_model(model, x, y, config["learning-rate"], seed)
    metrics = {"num-examples": len(y), **task.test_model(trained, x, y)}
    if part == config["attacker"]:
        trained = {name: model[name] - 10 * (trained[name] - model[name]) for name in model}
    content = {"arrays": task.to_record(trained), "metrics": MetricRecord(metrics)}
    return Message(RecordDict(content), reply_to=message)


@app.evaluate()
def evaluate(message, context):
    """Test the model on the node's own data."""
    x, y = task.load_part(context.node_config["partition-id"], test=True)
    metrics = task.test_model(task.from_record(message.content["arrays"]), x, y)
    content = {"metrics": MetricRecord({"num-examples": len(y), **metrics})}
    return Message(RecordDict(content), reply_to=message)
