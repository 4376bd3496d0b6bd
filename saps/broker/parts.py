"""The view that a broker's parts have of the broker. `saps.broker.broker.Broker` joins them; no part imports it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from saps.agents.api import AgentRegistry
    from saps.agents.live_io import LiveOfm
    from saps.broker.drain import BrokerDrain
    from saps.broker.node_driver import LiveMesh
    from saps.broker.status import BrokerWatch
    from saps.config import BrokerSettings
    from saps.frontend.mqtt.driver.access_control import AccessControl
    from saps.frontend.mqtt.driver.server import MqttServer
    from saps.frontend.upstream.bridge_io import Upstream
    from saps.identity.live import LinkIdentity
    from saps.links import Links
    from saps.overlay.ring.keys import BrokerRef
    from saps.policy.files_io import PolicyFiles
    from saps.routing.hub import Hub
    from saps.storage.driver.store import Store


class WebPort(Protocol):
    """The Web port, as other parts see it."""

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """The hosts and ports on which it listens."""


class Parts(Protocol):
    """A broker. Parts that may be None exist only if the settings ask for them, or before they are started."""

    @property
    def settings(self) -> BrokerSettings: ...
    @property
    def ref(self) -> BrokerRef: ...
    @property
    def hub(self) -> Hub: ...
    @property
    def access(self) -> AccessControl: ...
    @property
    def server(self) -> MqttServer: ...
    @property
    def links(self) -> Links: ...
    @property
    def agents(self) -> AgentRegistry: ...
    @property
    def mesh(self) -> LiveMesh: ...
    @property
    def watch(self) -> BrokerWatch: ...
    @property
    def web(self) -> WebPort | None: ...
    @property
    def drain(self) -> BrokerDrain | None: ...
    @property
    def upstream(self) -> Upstream | None: ...
    @property
    def ofm(self) -> LiveOfm | None: ...
    @property
    def store(self) -> Store | None: ...
    @property
    def policy(self) -> PolicyFiles | None: ...
    @property
    def identity(self) -> LinkIdentity | None: ...
    @property
    def holders(self) -> frozenset[str]:
        """The causes that hold publishers back at present (flow control): links, storage, upstream."""

    def hold(self, holder: str, held: bool) -> None:
        """Record that a cause holds publishers back, or no longer does."""

    async def leave(self) -> None:
        """Disconnect the clients, and leave the mesh in order (Leave)."""
