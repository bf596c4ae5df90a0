"""Sends a fixed set of metrics with the PyPI client `statsd`: python_statsd.py HOST PORT

    counter  pystatsd.requests  1, then 4 more, then 2 fewer
    gauge    pystatsd.depth     17.5, then +2.5, then -5
    timer    pystatsd.latency   12.5 ms, and 320 ms
    set      pystatsd.users     alice, bob, alice

The client knows no tags. The last two counters and the gauge changes go as one packet of
several lines, which is what its pipeline sends.
"""

import sys

import statsd


def main(host: str, port: int) -> None:
    client = statsd.StatsClient(host, port, prefix="pystatsd")
    client.incr("requests")
    client.gauge("depth", 17.5)
    client.timing("latency", 12.5)
    client.timing("latency", 320)
    for user in ("alice", "bob", "alice"):
        client.set("users", user)
    with client.pipeline() as pipeline:
        pipeline.incr("requests", 4)
        pipeline.decr("requests", 2)
        pipeline.gauge("depth", 2.5, delta=True)
        pipeline.gauge("depth", -5, delta=True)
    client.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
