"""A server that answers as Prometheus does: the shapes of its responses were recorded from version 2.42."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

Parameters = Mapping[str, str]
Response = tuple[int, Any]
"""Status, and an object for JSON or text."""

TOO_MANY_SAMPLES: Response = (
    422,
    {
        "status": "error",
        "errorType": "execution",
        "error": "query processing would load too many samples into memory in query execution",
    },
)
TIMED_OUT: Response = (
    503,
    {"status": "error", "errorType": "timeout", "error": "query timed out in expression evaluation"},
)
BAD_QUERY: Response = (
    400,
    {
        "status": "error",
        "errorType": "bad_data",
        "error": 'invalid parameter "query": 1:5: parse error: unexpected end',
    },
)
UNAVAILABLE: Response = (503, "Service Unavailable")


def _no_refusal(_: str, __: Parameters) -> Response | None:
    return None


@dataclass
class PrometheusStandIn:
    """Metrics that exist, the series of each selector, and the value of a series of a query at a time."""

    names: Sequence[str] = ()
    series: Sequence[Mapping[str, str]] = ()
    results: Callable[[str], Sequence[Mapping[str, str]]] = lambda _: ()
    """Returns the labels of a query's results."""
    value: Callable[[str, Mapping[str, str], int], str | None] = lambda *_: "1"
    """Returns the value of a query's result at a time, None for none."""
    refuse: Callable[[str, Parameters], Response | None] = _no_refusal
    """Returns a response in place of the usual one, by the last part of the path."""
    requests: list[tuple[str, Parameters, Mapping[str, str]]] = field(default_factory=list)
    """The last part of the path, parameters and headers."""

    def __enter__(self) -> Self:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                status, body = stand_in.respond(parts.path, parts.query, dict(self.headers))
                content = (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", str(body))
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def respond(self, path: str, query: str, headers: Mapping[str, str]) -> Response:
        called, parameters = (
            path.removeprefix("/api/v1/"),
            {name: value for name, (value, *_) in parse_qs(query).items()},
        )
        self.requests.append((called, parameters, headers))
        refusal = self.refuse(called, parameters)
        if refusal is not None:
            return refusal
        if called == "label/__name__/values":
            return 200, {"status": "success", "data": list(self.names)}
        if called == "series":
            return 200, {"status": "success", "data": list(self.series)}
        ranged = called == "query_range"
        start, end, step = (float(parameters.get(name, parameters.get("time", 1))) for name in ("start", "end", "step"))
        ends = range(int(start), int(end) + 1, int(step)) if ranged else [int(start)]
        promql = parameters["query"]
        result = []
        for labels in self.results(promql):
            points = [[at, value] for at in ends if (value := self.value(promql, labels, at)) is not None]
            if points:
                result.append({"metric": labels, **({"values": points} if ranged else {"value": points[0]})})
        return 200, {
            "status": "success",
            "data": {"resultType": "matrix" if ranged else "vector", "result": result},
        }

    def ranges(self) -> list[tuple[str, int, int]]:
        """Return the queries of ranges, with the first and last time."""
        return [
            (asked["query"], int(float(asked["start"])), int(float(asked["end"])))
            for called, asked, _ in self.requests
            if called == "query_range"
        ]
