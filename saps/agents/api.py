"""The agent API (SAPS 2016, section 3, fig. 3; after PIAX): agents register attributes, and others call them by
attribute.

`discovery_call` calls a method of all agents in the mesh that have an attribute, and gathers their answers. `call` by
name is the same with one match. The publisher and subscriber agents of clients need no key of their own: calls reach
them by name through their broker.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from inspect import signature
from typing import Any, Protocol, TypeVar

import msgspec

from saps.overlay.frames.calls import AgentCall, Answer
from saps.overlay.rendezvous.range_calls import Outcome
from saps.overlay.ring.keys import BrokerRef

REMEMBERED = 4096
"""Most calls whose answers are kept, so that a repeated call does not run again."""

_PLAIN: dict[Any, Any] = {
    "str": str,
    "int": int,
    "bool": bool,
    "float": float,
    "bytes": bytes,
    "list[Any]": list[Any],
    "list[str]": list[str],
}
"""Argument annotations that are checked, with the type that each stands for."""

_REMOTE: dict[object, list[Any]] = {}
"""Each remote method with the types of its arguments: `Any` where the annotation is not in `_PLAIN`. Arguments of a
call are converted to these types, so no agent gets a text where it expects a number."""

_REPEATABLE: set[object] = set()
"""The remote methods that may run again when a call is repeated. Their answers are not kept."""

Method = TypeVar("Method", bound=Callable[..., Any])
Value = TypeVar("Value")
Done = Callable[["Answers"], None]


def remote(method: Method) -> Method:
    """Mark a method of an agent as callable from other brokers. Arguments and result must be MessagePack values."""
    hints = getattr(method, "__annotations__", {})  # a compiled method has none
    _REMOTE[method] = [_PLAIN.get(hints.get(name), Any) for name in list(signature(method).parameters)[1:]]
    return method


def repeatable(method: Method) -> Method:
    """Mark a method as `remote` and harmless to run twice for one call. Its answers are not kept, so they may be
    large."""
    _REPEATABLE.add(method)
    return remote(method)


class Answers(list[Answer]):
    """The answers of all agents called. `complete` is False if some part of the mesh did not answer in time."""

    complete: bool = True

    @property
    def whole(self) -> bool:
        """Whether every part of the mesh has answered in time, and no agent with an error."""
        return self.complete and all(answer.error is None for answer in self)

    def of(self, kind: type[Value]) -> list[tuple[str, Value]]:
        """Return name of agent and value of each answer of this type. Errors, None and all other values are left
        out."""
        found = []
        for answer in self:
            if answer.error is None and answer.value is not None:
                try:
                    found.append((answer.agent, msgspec.convert(answer.value, kind)))
                except msgspec.ValidationError:
                    continue
        return found


class Caller(Protocol):
    """The part of the overlay that the registry needs (`saps.overlay.node.OverlayNode`)."""

    def register_attribute(self, attribute: str, done: Callable[[], None]) -> None: ...

    def unregister_attribute(self, attribute: str) -> None: ...

    def call_agents(
        self,
        attribute: str,
        method: str,
        args: tuple[Any, ...],
        done: Callable[[Outcome], None],
        *,
        broker: str | None = None,
    ) -> None: ...


class AgentRegistry:
    """The agents of one broker. An agent is any object; `remote` marks the methods that others may call."""

    def __init__(self) -> None:
        self._by_attribute: dict[str, dict[str, object]] = {}
        """Attribute -> name of agent -> agent. The name is an attribute too."""
        self._users: Mapping[str, object] = {}
        self._caller: Caller | None = None
        self._answered: OrderedDict[tuple[BrokerRef, int], list[Answer]] = OrderedDict()

    def bind(self, caller: Caller, users: Mapping[str, object] | None = None) -> None:
        """Connect the registry to the overlay. `users` are the user agents by name (`saps.routing.hub.Hub.agents`)."""
        self._caller = caller
        self._users = {} if users is None else users

    def register(
        self, name: str, agent: object, attributes: Iterable[str] = (), done: Callable[[], None] | None = None
    ) -> None:
        """Host an agent. `done` runs once calls from everywhere find the agent. Raises `ValueError` if the broker has
        an agent of that name."""
        if name in self._by_attribute.get(name, {}):
            raise ValueError(f"there is an agent {name!r} already")
        wanted = {name, *attributes}
        missing = len(wanted)

        def one_done() -> None:
            nonlocal missing
            missing -= 1
            if missing == 0 and done is not None:
                done()

        for attribute in sorted(wanted):
            self._by_attribute.setdefault(attribute, {})[name] = agent
            self._overlay.register_attribute(attribute, one_done)

    def host(self, name: str, agent: object) -> None:
        """Host an agent that is called only through its broker (``broker!name``, ``!name``). It needs no key in the
        overlay."""
        self._by_attribute.setdefault(name, {})[name] = agent

    def dismiss(self, name: str) -> None:
        """Stop hosting an agent that needed no key. Unknown names are ignored."""
        self._by_attribute.pop(name, None)

    def unregister(self, name: str) -> None:
        """Stop hosting an agent. Unknown names are ignored."""
        for attribute, agents in list(self._by_attribute.items()):
            if agents.pop(name, None) is not None and not agents:
                del self._by_attribute[attribute]
                self._overlay.unregister_attribute(attribute)

    def discovery_call(self, attribute: str, method: str, args: Iterable[Any], done: Done) -> None:
        """Call `method` of every agent in the mesh that has `attribute`. `done` gets the answers."""
        self._overlay.call_agents(attribute, method, tuple(args), lambda outcome: done(_answers(outcome)))

    def call(self, name: str, method: str, args: Iterable[Any], done: Done) -> None:
        """Call a method of one agent by name. ``broker!client/pub`` and ``broker!client/sub`` name the agents of a
        client at a broker, ``broker!name`` any agent there, and ``!name`` the agents of that name at all brokers."""
        broker, separator, user = name.partition("!")
        if separator:
            self._overlay.call_agents(user, method, tuple(args), lambda outcome: done(_answers(outcome)), broker=broker)
        else:
            self.discovery_call(name, method, args, done)

    def answer(self, call: AgentCall, by_name: bool) -> list[Answer]:
        """Run a call at this broker's agents and return their answers. A repeated call returns the kept answers,
        unless all of its methods are `repeatable`. With `by_name` the call runs only at the agent whose name is the
        attribute."""
        key = (call.origin, call.serial)
        known = self._answered.get(key)
        if known is not None:
            return known
        if by_name:
            named = self._by_attribute.get(call.attribute, {}).get(call.attribute)
            agent = self._users.get(call.attribute, named)
            agents = {} if agent is None else {call.attribute: agent}
        else:
            agents = self._by_attribute.get(call.attribute, {})
        answers = [_run(name, found, call) for name, found in agents.items()]
        if all(_may_run_again(type(agent), call.method) for agent in agents.values()):
            return answers
        self._answered[key] = answers
        if len(self._answered) > REMEMBERED:
            self._answered.popitem(last=False)
        return answers

    @property
    def _overlay(self) -> Caller:
        if self._caller is None:
            raise RuntimeError("the registry is not bound to a broker")
        return self._caller


def _run(name: str, agent: object, call: AgentCall) -> Answer:
    """Return one agent's answer. A method that fails answers with its error: no remote caller can break this broker."""
    arguments = None if call.method.startswith("_") else _arguments(type(agent), call.method)
    if arguments is None:
        return Answer(name, None, f"no method {call.method!r}")
    try:
        method = getattr(agent, call.method)
        known = [msgspec.convert(value, kind) for value, kind in zip(call.args, arguments, strict=False)]
        return Answer(name, method(*known, *call.args[len(known) :]))
    except Exception as error:
        return Answer(name, None, f"{type(error).__name__}: {error}")


def _arguments(kind: type, name: str) -> list[Any] | None:
    """Return the argument types of a class's method, or None if the method is not remote."""
    method = getattr(kind, name, None)
    return _REMOTE.get(method) if callable(method) and isinstance(method, Hashable) else None


def _may_run_again(kind: type, name: str) -> bool:
    """Return whether a class's method is `repeatable`, so that its answer need not be kept."""
    method = getattr(kind, name, None)
    return callable(method) and isinstance(method, Hashable) and method in _REPEATABLE


def _answers(outcome: Outcome) -> Answers:
    answers = Answers(result for result in outcome.results if isinstance(result, Answer))
    answers.complete = outcome.complete
    return answers
