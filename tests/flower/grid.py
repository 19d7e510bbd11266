"""A Flower grid in this process: each node is the real ClientApp, called at once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

SERVER = 1


Spoil = Callable[[int, Message, Message], Message | None]
Lose = Callable[[int, Message], bool]


class LocalGrid(Grid):
    """Nodes in this process, with hooks that may lose or spoil what goes to them and comes back."""

    def __init__(
        self,
        apps: dict[int, ClientApp],
        spoil: Spoil | None = None,
        run_config: dict[str, Any] | None = None,
        run: int = 7,
        lose: Lose | None = None,
    ) -> None:
        self.apps, self.spoil, self.lose = apps, spoil or _unspoilt, lose or _delivered
        self.contexts = {
            node: Context(
                run_id=run,
                node_id=node,
                node_config={},
                state=RecordDict(),
                run_config=run_config or {},
            )
            for node in apps
        }
        self.replies: dict[str, Message] = {}
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, SERVER, 1
        self.seen: list[tuple[int, Message, Message]] = []

    def set_run(self, run: Any) -> None:
        pass

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.apps)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return [self._push(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(name) for name in list(message_ids) if name in self.replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def _push(self, message: Message) -> str:
        node, name = message.metadata.dst_node_id, uuid.uuid4().hex
        message.metadata.__dict__["_message_id"] = name
        message.metadata.__dict__["_src_node_id"] = SERVER
        if self.lose(node, message):
            return name
        try:
            reply = self.apps[node](message, self.contexts[node])
        except Exception as error:  # noqa: BLE001 as a SuperNode does
            reply = Message(Error(0, str(error)), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = node
        kept = self.spoil(node, message, reply)
        if kept is not None:
            self.seen.append((node, message, kept))
            self.replies[name] = kept
        return name


def _delivered(node: int, request: Message) -> bool:
    return False


def _unspoilt(node: int, request: Message, reply: Message) -> Message | None:
    return reply
