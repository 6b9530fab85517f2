"""Which requests of admin clients are served, and which are refused because a command of Surveyor does the work."""

from collections.abc import Callable, Mapping
from typing import Final

from jobs.adapters.request_server.api_handler import ApiMessage, Caller
from jobs.adapters.request_server.messages import response_entity
from jobs.controller.admin_apis.cluster_metadata import METADATA, brokers_metadata
from jobs.controller.admin_apis.controller_as_broker import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_GROUPS,
    LIST_TRANSACTIONS,
    alter_configs,
    describe_configs,
    describe_log_dirs,
    incremental_alter_configs,
    list_groups,
    list_transactions,
)
from jobs.controller.admin_apis.reassignments import (
    ALTER_REASSIGNMENTS,
    ELECT_LEADERS,
    LIST_REASSIGNMENTS,
    alter_reassignments,
    elect_leaders,
    list_reassignments,
)
from jobs.controller.admin_apis.requests import AdminApiContext, AdminError, ApiError, error_fields
from jobs.controller.admin_apis.topics import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS_API,
    create_partitions,
    create_topics,
    delete_topics,
)
from schemas.broker_config_names import AUTHORIZER
from schemas.znode_json import PLAINTEXT

ALTER_SCRAM_USERS: Final = 51
UPDATE_FEATURES: Final = 57

CONFIG_VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    DESCRIBE_CONFIGS: (0, 4),
    ALTER_CONFIGS: (0, 2),
    INCREMENTAL_ALTER_CONFIGS: (0, 1),
}
"""Requests that are handled here if they are about the controller; a broker handles all others."""

VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    LIST_GROUPS: (0, 5),
    DESCRIBE_LOG_DIRS: (0, 4),
    LIST_TRANSACTIONS: (0, 1),
    CREATE_TOPICS: (0, 7),
    DELETE_TOPICS_API: (0, 6),
    CREATE_PARTITIONS: (0, 3),
    ELECT_LEADERS: (0, 2),
    ALTER_REASSIGNMENTS: (0, 0),
    LIST_REASSIGNMENTS: (0, 0),
    ALTER_SCRAM_USERS: (0, 0),
    UPDATE_FEATURES: (0, 1),
}

_NO_SCRAM: Final = ApiError(
    AdminError.POLICY_VIOLATION,
    (
        "Surveyor is the controller, and does not change users. Stop it for that time, or change them "
        "with `kafka-configs --zookeeper`"
    ),
)
_NO_FEATURES: Final = ApiError(
    AdminError.POLICY_VIOLATION, "Surveyor is the controller, and finalizes no features; brokers of ZooKeeper have none"
)


COMMANDS: Final[Mapping[int, str]] = {
    CREATE_TOPICS: "plan assign",
    DELETE_TOPICS_API: "plan delete",
    CREATE_PARTITIONS: "plan expand",
    ELECT_LEADERS: "plan elect",
    ALTER_REASSIGNMENTS: "plan reassign",
    LIST_REASSIGNMENTS: "status` or `surveyor plan reassign",
}
"""The commands that have the effect of the requests. `kafka-reassign-partitions` lists before it moves anything."""

WAITING: Final = COMMANDS.keys() - {LIST_REASSIGNMENTS}
"""Requests whose response waits until a cycle has carried them out."""


def refusal_of(api: int, caller: Caller, authorizer: str | None, *, is_served: bool = True) -> ApiError | None:
    """Return the response to a client for which nothing is carried out, None if its requests are served.

    `authorizer`: the brokers' authorizer, None if it is not known. `is_served`: whether clients log in at this address
    as at the brokers. `kafka-topics --describe` continues without a list of reassignments only if the client is not
    authorized (`TopicCommand.listAllReassignments`).
    """
    reason = _reason_to_refuse(caller, authorizer, is_served=is_served) if api in COMMANDS else None
    if reason is None:
        return None
    error = AdminError.CLUSTER_AUTHORIZATION_FAILED if api == LIST_REASSIGNMENTS else AdminError.POLICY_VIOLATION
    return ApiError(error, f"Surveyor is the controller, and {reason}: use `surveyor {COMMANDS[api]}`")


def _reason_to_refuse(caller: Caller, authorizer: str | None, *, is_served: bool) -> str | None:
    if caller.protocol != PLAINTEXT and caller.clients_of is None:
        return f"at a listener with {caller.protocol} it serves brokers only"
    if authorizer != "":
        if authorizer is None:
            return "it cannot ask the brokers' authorizer (no broker has reported whether it has one)"
        return f"it cannot ask the brokers' authorizer ({AUTHORIZER}={authorizer})"
    if not is_served:
        return "it serves no clients at this address now, because of the security settings of brokers (see its log)"
    return None


def _alter_scram_users(_api_context: AdminApiContext, version: int, request: ApiMessage) -> ApiMessage:
    users = dict.fromkeys(user.name for user in (*request.deletions, *request.upsertions))
    name, fields = "AlterUserScramCredentialsResult", error_fields(_NO_SCRAM)
    results = [response_entity(ALTER_SCRAM_USERS, version, name, user=user, **fields) for user in users]
    return response_entity(ALTER_SCRAM_USERS, version, "AlterUserScramCredentialsResponse", results=tuple(results))


def _update_features(_api_context: AdminApiContext, version: int, request: ApiMessage) -> ApiMessage:
    results = [
        response_entity(
            UPDATE_FEATURES, version, "UpdatableFeatureResult", feature=update.feature, **error_fields(_NO_FEATURES)
        )
        for update in request.feature_updates
    ]
    name = "UpdateFeaturesResponse"
    return response_entity(UPDATE_FEATURES, version, name, results=tuple(results), **error_fields(_NO_FEATURES))


_HANDLERS: Final[Mapping[int, Callable[[AdminApiContext, int, ApiMessage], ApiMessage]]] = {
    CREATE_TOPICS: create_topics,
    DELETE_TOPICS_API: delete_topics,
    CREATE_PARTITIONS: create_partitions,
    ELECT_LEADERS: elect_leaders,
    ALTER_REASSIGNMENTS: alter_reassignments,
    LIST_REASSIGNMENTS: list_reassignments,
    LIST_GROUPS: list_groups,
    DESCRIBE_LOG_DIRS: describe_log_dirs,
    LIST_TRANSACTIONS: list_transactions,
    DESCRIBE_CONFIGS: describe_configs,
    ALTER_CONFIGS: alter_configs,
    INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    METADATA: brokers_metadata,
    ALTER_SCRAM_USERS: _alter_scram_users,
    UPDATE_FEATURES: _update_features,
}


def handle_admin(api_context: AdminApiContext, api: int, version: int, request: ApiMessage) -> ApiMessage:
    """Handle a request of an admin client; may wait as long as the client does."""
    return _HANDLERS[api](api_context, version, request)
