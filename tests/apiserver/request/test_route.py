"""Paths are parsed to verbs and resources."""

from __future__ import annotations

import pytest

from torchyard.apiserver.request.route import Route, decode_path, parse


@pytest.mark.parametrize(
    ("method", "path", "route"),
    [
        ("GET", "/api/v1/pods", Route("list", "", "v1", "pods")),
        ("GET", "/api/v1/namespaces/n/pods", Route("list", "", "v1", "pods", "n")),
        ("GET", "/api/v1/namespaces/n/pods/p/", Route("get", "", "v1", "pods", "n", "p")),
        ("POST", "/apis/batch/v1/namespaces/n/jobs", Route("create", "batch", "v1", "jobs", "n")),
        (
            "PUT",
            "/apis/batch/v1/namespaces/n/jobs/j/status",
            Route("update", "batch", "v1", "jobs", "n", "j", "status"),
        ),
        ("DELETE", "/api/v1/namespaces/n/pods", Route("deletecollection", "", "v1", "pods", "n")),
        ("GET", "/api/v1/namespaces/n", Route("get", "", "v1", "namespaces", "n", "n")),
        ("PUT", "/api/v1/namespaces/n/finalize", Route("update", "", "v1", "namespaces", "n", "n", "finalize")),
        ("GET", "/api/v1/nodes/a%2Fb", Route("get", "", "v1", "nodes", "", "a", "b")),
        ("GET", "/api/v1/watch/pods", Route("watch", "", "v1", "pods", prefix="watch")),
        ("POST", "/api/v1/watch/pods", Route("watch", "", "v1", "pods", prefix="watch")),
        ("GET", "/api/v1/proxy/nodes/n/x/y", Route("proxy", "", "v1", "nodes", "", "n", "", "x/y", "proxy")),
        ("GET", "/apis/apps/v1/namespaces/n", Route("get", "apps", "v1", "namespaces", "n", "n")),
        ("GET", "/api/v1/namespaces/n/pods/p/proxy/a/b", Route("get", "", "v1", "pods", "n", "p", "proxy", "a/b")),
        ("GET", "/api/v1", Route("get", "", "v1", is_resource=False)),
        ("GET", "/apis/batch/v1/", Route("get", "batch", "v1", is_resource=False)),
        ("GET", "//api/v1/pods", Route("list", "", "v1", "pods", is_canonical=False)),
        ("GET", "/apis//v1/pods", Route("list", "", "v1", "pods", is_canonical=False)),
        ("GET", "/api/v1//pods", Route("get", "", "v1", "", "", "pods")),
    ],
)
def test_a_path_is_parsed_to_a_verb_and_a_resource(method: str, path: str, route: Route) -> None:
    assert parse(method, decode_path(path)) == route


@pytest.mark.parametrize("path", ["/", "/version", "/apis", "/apis/batch", "/api", "/openapi/v3/api/v1"])
def test_other_paths_are_not_resources(path: str) -> None:
    assert parse("GET", path) is None


def test_the_watch_parameter_makes_a_list_a_watch() -> None:
    assert parse("GET", "/api/v1/pods", watch=True) == Route("watch", "", "v1", "pods")
