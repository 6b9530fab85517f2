"""The endpoints at which the resident controller is announced, as one of the live brokers of each UpdateMetadata.

They have the names of the brokers' listeners, which may change while the controllership lasts (`controller_node` has
the rules). A listener whose clients would not be safe here is no longer announced to them, nor served.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jobs.adapters.request_server.listen_config import Security
from jobs.controller.controller_context import ControllerContext
from jobs.controller.controller_endpoints import broker_endpoints, served_listeners
from jobs.core.errors import RefusedError
from jobs.runtime.console import LogLine
from schemas.rows import BrokerConfig
from schemas.znode_codecs import Endpoint


@dataclass(slots=True)
class AdvertisedEndpoints:
    """The announcement of one controllership."""

    context: ControllerContext
    log_line: LogLine
    served: Sequence[Endpoint] = ()
    """The endpoints of our server; one for the clients of a listener has its name, the others have none."""
    logins: Mapping[str, Security] = field(default_factory=dict)
    """How the clients of listeners log in at these endpoints, by listener."""
    announced: Sequence[Endpoint] = ()
    """Endpoints at which brokers and clients reach this controller; empty if it does not serve their requests."""
    served_listeners: frozenset[str | None] = frozenset()
    """The listeners whose clients are served, None for those at the plain-text address of brokers."""
    _warnings: frozenset[str] = frozenset()
    """Reasons why some endpoints are not served now; each reason is logged once."""

    def refresh(self, configs: Sequence[BrokerConfig]) -> bool:
        """Name the endpoints as the brokers' listeners are named; return whether that differs from before.

        The former ones for brokers are kept if a listener of them is not served. Clients are no longer served, and no
        longer see us, at a listener at which a broker has another security than our address. Until a broker is
        registered, there is nothing to compare, and nothing changes.
        """
        brokers, former = [*self.context.brokers.values()], self.announced
        endpoints = [endpoint for endpoint in former if endpoint not in self.for_clients]
        warnings, listeners = list[str](), self.served_listeners
        try:
            endpoints = broker_endpoints(configs, brokers, self.served)
        except RefusedError as error:
            warnings.append(str(error))
        if any(broker.endpoints for broker in brokers):
            listeners, reasons = served_listeners(self.served, endpoints, configs, brokers, self.logins)
            warnings += reasons
        for warning in dict.fromkeys(warnings):
            if warning not in self._warnings:
                self.log_line(f"surveyor: warning: {warning}", logging.WARNING)
        for name in listeners - self.served_listeners if former else ():
            where = f"of listener {name}" if name else "at the plain-text address of brokers"
            self.log_line(f"surveyor: clients {where} are served again")
        self._warnings, self.served_listeners = frozenset(warnings), listeners
        self.announced = [*endpoints, *(endpoint for endpoint in self.for_clients if endpoint.listener in listeners)]
        return [*former] != self.announced

    @property
    def for_clients(self) -> list[Endpoint]:
        """The endpoints that are only for clients of a listener."""
        return [endpoint for endpoint in self.served if endpoint.listener is not None]
