"""The server's figures in Prometheus' text format."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from rollouts.api.service import Service

PREFIX = "lachesis_rollout_api"


def metrics_text(service: Service) -> bytes:
    """Return the figures as they are now."""
    registry = CollectorRegistry()
    registry.register(_Figures(service))
    return generate_latest(registry)


class _Figures(Collector):
    def __init__(self, service: Service):
        self._service = service

    def collect(self) -> Iterator[Metric]:
        queue, counts = self._service.queue, self._service.queue.counts
        gauges = {
            "waiting_groups": ("Groups to be handed out", len(queue.waiting)),
            "leased_groups": ("Groups trainers have", queue.leased),
            "queue_bytes": ("Size of all queued groups", queue.size_bytes),
            "policy_version": ("Newest policy version", self._service.policy.version),
            "environments_alive": (
                "Environments that gave a sign of life",
                len(self._service.registry.alive()),
            ),
        }
        counters = {
            "pushed_groups": ("Groups accepted", counts.pushed),
            "duplicate_pushes": ("Pushes of groups that were pushed before", counts.duplicates),
            "delivered_groups": ("Groups handed out", counts.delivered),
            "redelivered_groups": ("Groups handed out once more", counts.redelivered),
            "acked_groups": ("Groups acknowledged", counts.acked),
            "stale_groups": ("Groups dropped for their policy version", counts.stale),
            "expired_leases": ("Leases that ended without an acknowledgement", counts.leases_expired),
            "legacy_rows_left_out": (
                "Further rows of rollouts sent on the legacy wire",
                counts.legacy_rows_left_out,
            ),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"{PREFIX}_{name}", text, value)
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(f"{PREFIX}_{name}", text, value)
        refused = CounterMetricFamily(f"{PREFIX}_refused_pushes", "Pushes turned away", labels=["status"])
        for status, count in counts.refused.items():
            refused.add_metric([status], count)
        yield refused
        in_flight = GaugeMetricFamily(
            f"{PREFIX}_in_flight_groups", "Groups being rolled out", labels=["environment"]
        )
        for environment in self._service.registry.alive():
            in_flight.add_metric([environment.unique_name], environment.in_flight)
        yield in_flight
