"""The app of a node. What makes it robust and private is one line: mods=[robust_mod].

torch is imported by task.py, and task.py inside of functions: a node starts a process for each
message, most of which the mod answers without the app, and those need not wait for torch.
"""

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from rfa.flower import robust_mod  # before: nothing

app = ClientApp(mods=[robust_mod])  # before: app = ClientApp()


@app.train()
def train(message, context):
    """Train the model on the node's own data."""
    from flower_pytorch import task

    part, config = context.node_config["partition-id"], context.run_config
    x, y = task.load_part(part)
    model = task.load_model(message.content["arrays"])
    seed = [context.run_id, message.content["config"]["server-round"], part]
    loss = task.train_model(model, x, y, config["learning-rate"], seed)
    metrics = {"num-examples": len(y), "loss": loss}
    state = model.state_dict()
    if part == config["attacker"]:
        state = task.random_numbers(state)
    content = {"arrays": ArrayRecord(state), "metrics": MetricRecord(metrics)}
    return Message(RecordDict(content), reply_to=message)


@app.evaluate()
def evaluate(message, context):
    """Test the model on the node's own data."""
    from flower_pytorch import task

    x, y = task.load_part(context.node_config["partition-id"], test=True)
    accuracy = task.test_model(task.load_model(message.content["arrays"]), x, y)
    content = {"metrics": MetricRecord({"num-examples": len(y), "accuracy": accuracy})}
    return Message(RecordDict(content), reply_to=message)
