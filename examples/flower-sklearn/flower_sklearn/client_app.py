"""The app of a node. What makes it robust and private is one line: mods=[robust_mod].

scikit-learn is imported by task.py, and task.py inside of functions: a node starts a process for
each message, most of which the mod answers without the app, and those need not wait for it.
"""

from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from rfa.flower import robust_mod  # before: nothing

app = ClientApp(mods=[robust_mod])  # before: app = ClientApp()


@app.train()
def train(message, context):
    """Train the model on the site's own patients."""
    from flower_sklearn import task

    site = context.node_config["partition-id"]
    x, y = task.load_site(site)
    before = message.content["arrays"]
    seed = [context.run_id, message.content["config"]["server-round"], site]
    model = task.train_model(task.load_model(before), x, y, seed)
    metrics = {"num-examples": len(y), "accuracy": float(model.score(x, y))}
    arrays = task.to_record(model)
    if site == context.run_config["attacker"]:
        arrays = task.backwards(before, arrays, 100_000)
    content = {"arrays": arrays, "metrics": MetricRecord(metrics)}
    return Message(RecordDict(content), reply_to=message)


@app.evaluate()
def evaluate(message, context):
    """Test the model on the site's own patients."""
    from flower_sklearn import task

    x, y = task.load_site(context.node_config["partition-id"])
    accuracy = float(task.load_model(message.content["arrays"]).score(x, y))
    content = {"metrics": MetricRecord({"num-examples": len(y), "accuracy": accuracy})}
    return Message(RecordDict(content), reply_to=message)
