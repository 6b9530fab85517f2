"""Names of broker configs that several packages read."""

from typing import Final

DEFAULT_ENTITY: Final = "<default>"
"""Name of the znode with the configs of every broker; the Admin API uses the empty name."""

PROTOCOL_VERSION: Final = "inter.broker.protocol.version"
RECOVERY_STATE_SINCE: Final = (3, 2)
"""From this protocol version on, states may be RECOVERING (`MetadataVersion.isLeaderRecoverySupported`)."""

CONTROL_PLANE_LISTENER: Final = "control.plane.listener.name"
AUTHORIZER: Final = "authorizer.class.name"
CREATE_POLICY: Final = "create.topic.policy.class.name"
REPLICA_SELECTOR: Final = "replica.selector.class"
"""Which replica consumers read from (KIP-392)."""
