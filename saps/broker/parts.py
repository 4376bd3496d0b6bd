"""What the parts of a broker see of it: `saps.broker.broker.Broker` puts them together, and no part knows it."""

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
    from saps.local.hub import Hub
    from saps.overlay.ring.keys import BrokerRef
    from saps.policy.files_io import PolicyFiles
    from saps.storage.driver.store import Store


class WebPort(Protocol):
    """The Web port, seen from beside."""

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """Where it listens."""


class Parts(Protocol):
    """A broker. What may be None is there if the settings ask for it."""

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
        """What holds publishers back at present: links, storage, upstream."""

    def hold(self, holder: str, held: bool) -> None:
        """It holds them back, or no longer."""

    async def leave(self) -> None:
        """Close the clients, and leave the mesh in order."""
