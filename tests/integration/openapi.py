"""Prints the OpenAPI v3 document of core/v1, of the API server that the tests run against."""

import json
import sys

from tests.integration.kube_env import kube_env


def main() -> None:
    """Start an API server, print its document, and end it."""
    with kube_env() as env:
        status, document = env.request("GET", "/openapi/v3/api/v1")
        if status != 200:
            raise SystemExit(f"the API server answers {status}: {document}")
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    main()
