"""The settings of a command, for tests that call what is below the commands."""

from typing import Any

from jobs.runtime.settings import Settings, settings_from


def settings_of(warehouse: str | None, zookeeper: str | None = None, **options: Any) -> Settings:  # noqa: ANN401 - those of `settings_from`
    """Return the settings of cluster `default`, without a file unless `options` have one."""
    unused: dict[str, Any] = {"conf_path": None, "command_config": None, "as_json": False, "result_file": None}
    return settings_from(**{"cluster": "default", **unused, "zookeeper": zookeeper, "warehouse": warehouse, **options})
