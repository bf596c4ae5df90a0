"""Sends a fixed set of metrics with the PyPI client `datadog`: python_datadog.py HOST PORT

    counter       pydatadog.requests  1, then 4 more       tags route:/home, canary
    gauge         pydatadog.depth     17.5
    timer         pydatadog.latency   12.5 ms              tag  route:/home
    histogram     pydatadog.bytes     512
    distribution  pydatadog.wait      0.25
    set           pydatadog.users     alice, bob, alice

Every metric also carries the constant tag client:datadog. The client's metrics about itself are
switched off, so that the set above is all that arrives.
"""

import sys

from datadog.dogstatsd import DogStatsd

TAGS = ["route:/home", "canary"]


def main(host: str, port: int) -> None:
    client = DogStatsd(
        host=host,
        port=port,
        namespace="pydatadog",
        constant_tags=["client:datadog"],
        disable_telemetry=True,
        disable_buffering=True,
        disable_aggregation=True,
        origin_detection_enabled=False,
    )
    client.increment("requests", 1, tags=TAGS)
    client.increment("requests", 4, tags=TAGS)
    client.gauge("depth", 17.5)
    client.timing("latency", 12.5, tags=["route:/home"])
    client.histogram("bytes", 512)
    client.distribution("wait", 0.25)
    for user in ("alice", "bob", "alice"):
        client.set("users", user)
    client.flush()
    client.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
