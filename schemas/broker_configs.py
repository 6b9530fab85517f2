"""Names of broker configs that several rooms read."""

from typing import Final

DEFAULT_ENTITY: Final = "<default>"
"""Name under which the configs of every broker are stored."""

PROTOCOL_VERSION: Final = "inter.broker.protocol.version"
CONTROL_PLANE_LISTENER: Final = "control.plane.listener.name"
AUTHORIZER: Final = "authorizer.class.name"
CREATE_POLICY: Final = "create.topic.policy.class.name"
