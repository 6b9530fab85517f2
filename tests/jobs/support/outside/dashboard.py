"""The dashboard, run without a server."""

from streamlit.testing.v1 import AppTest


def dashboard(warehouse: str, cluster: str, /, *options: str, **linked: str) -> AppTest:
    """Run the script of the dashboard once; `linked` are parameters of its address."""
    words = ["--warehouse", warehouse, "--cluster", cluster, "--max-plan-age-hours", "24", *options]
    app = AppTest.from_function(_script, args=(words,), default_timeout=60)
    for name, value in linked.items():
        app.query_params[name] = value
    return app.run()


def _script(words: list[str]) -> None:
    from jobs.web.dashboard.app import main  # noqa: PLC0415 - Streamlit runs the source of this function alone

    main(words)
