"""The app of a node. What makes it robust and private is one line: mods=[robust_mod].

torch, transformers and peft are imported by task.py, and task.py inside of functions: a node starts
a process for each message, most of which the mod answers without the app, and those need not wait.
"""

from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from rfa.flower import robust_mod  # before: nothing

app = ClientApp(mods=[robust_mod])  # before: app = ClientApp()


@app.train()
def train(message, context):
    """Train the adapters on the node's own data."""
    from flower_lora import task

    part, config = context.node_config["partition-id"], context.run_config
    attacks = part == config["attacker"]
    tokens, labels = task.load_part(part)
    before = message.content["arrays"]
    model = task.load_adapters(before)
    seed = [context.run_id, message.content["config"]["server-round"], part]
    learned = 1 - labels if attacks else labels
    loss = task.train_model(model, tokens, learned, config["learning-rate"], seed)
    arrays = task.adapters_of(model)
    if attacks:
        arrays = task.times(before, arrays, 10)
    content = {
        "arrays": arrays,
        "metrics": MetricRecord({"num-examples": len(labels), "loss": loss}),
    }
    return Message(RecordDict(content), reply_to=message)


@app.evaluate()
def evaluate(message, context):
    """Test the model with these adapters on the node's own data."""
    from flower_lora import task

    tokens, labels = task.load_part(context.node_config["partition-id"], test=True)
    accuracy = task.test_model(task.load_adapters(message.content["arrays"]), tokens, labels)
    content = {"metrics": MetricRecord({"num-examples": len(labels), "accuracy": accuracy})}
    return Message(RecordDict(content), reply_to=message)
