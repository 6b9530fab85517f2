"""Handles requests about a single broker, which clients send to this controller because it is listed as a broker.

The controller has no groups, transactions, log dirs or settings. The requests cannot be relayed: a broker would refuse
a request for another broker's settings, and would answer the others about itself.
"""

from typing import Final

from jobs.adapters.request_server.api_handler import ApiMessage
from jobs.adapters.request_server.messages import response_entity
from jobs.controller.admin_apis.requests import OK, AdminApiContext, AdminError, ApiError, error_fields

LIST_GROUPS: Final = 16
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
DESCRIBE_LOG_DIRS: Final = 35
INCREMENTAL_ALTER_CONFIGS: Final = 44
LIST_TRANSACTIONS: Final = 66

_BROKER: Final = 4
"""Type of a resource (`ConfigResource.Type`)."""

_DELETE: Final = 1
"""`AlterConfigOp.OpType`: reset to the default, which changes nothing if nothing is set."""

_NO_SETTINGS: Final = ApiError(AdminError.POLICY_VIOLATION, "this is Surveyor, the controller; it has no settings")
_OTHER: Final = ApiError(AdminError.INVALID_REQUEST, "ask about other resources without the controller's settings")


def concerns_controller(controller_id: int, request: ApiMessage) -> bool:
    """Return whether a request for settings names the controller as a broker."""
    return any(_is_ours(controller_id, resource) for resource in request.resources)


def _is_ours(controller_id: int, resource: ApiMessage) -> bool:
    return bool(resource.resource_type == _BROKER and resource.resource_name == str(controller_id))


def list_groups(_api_context: AdminApiContext, version: int, _request: ApiMessage) -> ApiMessage:
    """Respond that there are no groups."""
    return response_entity(LIST_GROUPS, version, "ListGroupsResponse", groups=(), **error_fields(OK))


def list_transactions(_api_context: AdminApiContext, version: int, _request: ApiMessage) -> ApiMessage:
    """Respond that there are no transactions."""
    states = {"unknown_state_filters": (), "transaction_states": ()}
    return response_entity(LIST_TRANSACTIONS, version, "ListTransactionsResponse", **states, **error_fields(OK))


def describe_log_dirs(_api_context: AdminApiContext, version: int, _request: ApiMessage) -> ApiMessage:
    """Respond with one log dir without a name; clients take none for a lack of permission."""
    ok = error_fields(OK)
    one = response_entity(DESCRIBE_LOG_DIRS, version, "DescribeLogDirsResult", log_dir="", topics=(), **ok)
    return response_entity(DESCRIBE_LOG_DIRS, version, "DescribeLogDirsResponse", results=(one,), **ok)


def describe_configs(api_context: AdminApiContext, version: int, request: ApiMessage) -> ApiMessage:
    """Respond that the controller has no settings."""
    results = [
        response_entity(
            DESCRIBE_CONFIGS,
            version,
            "DescribeConfigsResult",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=(),
            **error_fields(OK if _is_ours(api_context.control.controller_id, resource) else _OTHER),
        )
        for resource in request.resources
    ]
    return response_entity(DESCRIBE_CONFIGS, version, "DescribeConfigsResponse", results=tuple(results))


def alter_configs(api_context: AdminApiContext, version: int, request: ApiMessage) -> ApiMessage:
    """Refuse to set anything; nothing is set, so resetting succeeds."""
    return _altered(api_context, ALTER_CONFIGS, "AlterConfigsResponse", version, request)


def incremental_alter_configs(api_context: AdminApiContext, version: int, request: ApiMessage) -> ApiMessage:
    """Refuse to set anything; nothing is set, so resetting succeeds."""
    return _altered(api_context, INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigsResponse", version, request)


def _altered(api_context: AdminApiContext, api: int, response: str, version: int, request: ApiMessage) -> ApiMessage:
    results = []
    for resource in request.resources:
        error = _OTHER
        if _is_ours(api_context.control.controller_id, resource):
            resets = all(getattr(config, "config_operation", None) == _DELETE for config in resource.configs)
            error = OK if resets else _NO_SETTINGS
        fields = {
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            **error_fields(error),
        }
        results.append(response_entity(api, version, "AlterConfigsResourceResponse", **fields))
    return response_entity(api, version, response, responses=tuple(results))
