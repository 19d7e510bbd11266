"""The app of a node. What makes it robust and private is one line: mods=[robust_mod].

JAX is imported by task.py, and task.py inside of functions: a node starts a process for each
message, most of which the mod answers without the app, and those need not wait for JAX.
"""

from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from rfa.flower import robust_mod  # before: nothing

app = ClientApp(mods=[robust_mod])  # before: app = ClientApp()


@app.train()
def train(message, context):
    """Train the model on the node's own data."""
    from flower_jax import task

    part, config = context.node_config["partition-id"], context.run_config
    x, y = task.load_part(part)
    seed = [context.run_id, message.content["config"]["server-round"], part]
    steps, rate = config["local-steps"], config["learning-rate"]
    model = task.from_record(message.content["arrays"])
    trained, loss = task.train_model(model, x, y, steps, rate, seed)
    if part == config["attacker"]:
        trained = task.nothing_but_nan(trained)
    metrics = MetricRecord({"num-examples": len(y), "loss": loss})
    content = {"arrays": task.to_record(trained), "metrics": metrics}
    return Message(RecordDict(content), reply_to=message)


@app.evaluate()
def evaluate(message, context):
    """Test the model on the node's own data."""
    from flower_jax import task

    x, y = task.load_part(context.node_config["partition-id"], test=True)
    accuracy = task.test_model(task.from_record(message.content["arrays"]), x, y)
    content = {"metrics": MetricRecord({"num-examples": len(y), "accuracy": accuracy})}
    return Message(RecordDict(content), reply_to=message)
