"""The app of a node. What makes it robust and private is one line: mods=[robust_mod].

Each message starts a process, and most do not reach the app: what these need not load is imported
inside of functions.
"""

from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from rfa.flower import Policy, RobustMod, ServerModel, robust_mod

# The cap is the example_cap of the server.
wary_mod = RobustMod(Policy(server_model=ServerModel.MALICIOUS), cap=10_000)


def mod(message, context, call_next):
    """Choose a mod. An app of yours does not need this: it has mods=[robust_mod]."""
    if context.node_config.get("server-model") == "malicious":  # what the owner of the node says
        return wary_mod(message, context, call_next)
    if context.run_config["strategy"] == "fedavg":
        # For the comparison only: the update leaves the node in the clear. robust_mod would refuse.
        return call_next(message, context)
    return robust_mod(message, context, call_next)


app = ClientApp(mods=[mod])  # in an app of yours: ClientApp(mods=[robust_mod])


@app.train()
def train(message, context):
    """Train the model on the node's own writers."""
    from flower_emnist.corruption import corrupt
    from flower_emnist.task import from_record, load_part, test_model, to_record, train_model

    part, parts = context.node_config["partition-id"], context.node_config["num-partitions"]
    config, t = context.run_config, message.content["config"]["server-round"]
    model = from_record(message.content["arrays"])
    x, y = load_part(config, part, parts)
    seed = context.run_id  # never the same update twice, not even in another run
    trained = train_model(model, x, y, config, seed=[seed, t, part])
    metrics = {"num-examples": len(y), "train-loss": test_model(trained, x, y)["loss"]}
    if part < config["corrupted"]:
        trained = corrupt(model, trained, config, parts, [seed, t])
    content = {"arrays": to_record(trained), "metrics": MetricRecord(metrics)}
    return Message(RecordDict(content), reply_to=message)


@app.evaluate()
def evaluate(message, context):
    """Test the model on the node's own writers."""
    from flower_emnist.task import from_record, load_part, test_model

    part, parts = context.node_config["partition-id"], context.node_config["num-partitions"]
    x, y = load_part(context.run_config, part, parts, test=True)
    metrics = test_model(from_record(message.content["arrays"]), x, y)
    content = {"metrics": MetricRecord({"num-examples": len(y), **metrics})}
    return Message(RecordDict(content), reply_to=message)
