//! Every metric: its name, its help, and where its value comes from.

use super::view::{Sample, View, float, seconds};
use protocols::ParseError;

/// Every metric. Names and labels never change; the order is that of a point's way.
pub(super) const METRICS: &[Metric] = &[
    counter("pointsman_received_points_total", "Points parsed, by listener.", |view| {
        view.listeners(|book| book.received.get())
    }),
    counter(
        "pointsman_received_bytes_total",
        "Bytes read from sockets, HTTP bodies decompressed.",
        |view| view.listeners(|book| book.received_bytes.get()),
    ),
    counter(
        "pointsman_rejected_total",
        "Lines, items, bodies and connections refused, by reason.",
        |view| {
            let known = ParseError::ALL.iter().map(|reason| reason.label());
            view.listener_reasons("reason", |book| &book.rejected, known)
        },
    ),
    counter(
        "pointsman_kernel_dropped_datagrams_total",
        "Datagrams that the kernel threw away because the socket's buffer was full.",
        |view| view.listeners(|book| book.kernel_dropped.get()),
    ),
    counter(
        "pointsman_matched_points_total",
        "Points that at least one route took, by listener; received = matched + unmatched + denied.",
        |view| view.listeners(|book| book.routed.get()),
    ),
    counter("pointsman_unmatched_points_total", "Points that no route took.", |view| {
        view.listeners(|book| book.unmatched.get())
    }),
    counter("pointsman_denied_points_total", "Points that their sender may not write.", |view| {
        view.listeners(|book| book.denied.total())
    }),
    counter("pointsman_denials_total", "Denied points, by reason.", |view| {
        view.listener_reasons("reason", |book| &book.denied, KNOWN_DENIALS.iter().copied())
    }),
    counter(
        "pointsman_acks_total",
        "Requests that waited for their points to be queued or delivered before they were answered.",
        |view| view.listeners(|book| book.acks.get()),
    ),
    gauge(
        "pointsman_ack_wait_seconds_sum",
        "How long these requests took, from their head to their answer, together.",
        |view| view.listeners(|book| float(book.ack_micros.get()) / 1e6),
    ),
    gauge(
        "pointsman_tls_certificate_expiry_timestamp_seconds",
        "When the certificate that a listener or a backend shows ends, in seconds since 1970.",
        View::certificates,
    ),
    gauge("pointsman_connections", "Connections open now.", |view| {
        view.listeners(|book| float(book.connections.get()))
    }),
    gauge(
        "pointsman_idempotency_keys",
        "Keys of HTTP requests that are remembered, so that a repeated one counts once.",
        |view| view.listeners(|book| float(book.keys.get())),
    ),
    counter("pointsman_routed_points_total", "Points that a route took.", View::routes),
    counter(
        "pointsman_handed_points_total",
        "Points that routes handed to a backend; handed + recovered - folded_points + folded_rows = delivered + dropped + replayed + held.",
        |view| view.backends(|book| book.handed.get()),
    ),
    counter(
        "pointsman_recovered_points_total",
        "Points of an earlier run that were found in the spool or among the dead letters.",
        |view| view.backends(|book| book.recovered.get()),
    ),
    counter("pointsman_folded_points_total", "Points that closed windows had folded.", |view| {
        view.backends(|book| book.folded_points.get())
    }),
    counter(
        "pointsman_folded_rows_total",
        "Rows that closed windows made of the points they folded.",
        |view| view.backends(|book| book.folded_rows.get()),
    ),
    counter("pointsman_delivered_points_total", "Points that the backend took.", |view| {
        view.backends(|book| book.delivered.get())
    }),
    counter("pointsman_delivery_retries_total", "Attempts that had to be repeated.", |view| {
        view.backends(|book| book.retries.get())
    }),
    gauge(
        "pointsman_backend_healthy",
        "Whether the last attempt at the backend needs no repeat; 1 before the first. The ledger has its words.",
        |view| view.backends(|book| float(u64::from(book.illness().is_none()))),
    ),
    gauge(
        "pointsman_endpoint_healthy",
        "Whether the last attempt at this endpoint of the backend was answered; 1 before the first.",
        |view| view.endpoints(|book| float(1_u64.saturating_sub(book.ill.get()))),
    ),
    counter(
        "pointsman_endpoint_delivered_points_total",
        "Points that this endpoint of the backend took.",
        |view| view.endpoints(|book| book.delivered.get()),
    ),
    counter("pointsman_dropped_points_total", "Points given up, by reason.", |view| {
        view.backend_reasons("reason", |book| &book.dropped, KNOWN_DROPS)
    }),
    counter(
        "pointsman_refused_points_total",
        "Points that the backend refused for good, by reason: kept as dead letters, or dropped.",
        |view| view.backend_reasons("reason", |book| &book.refused, KNOWN_REFUSALS),
    ),
    counter(
        "pointsman_replayed_points_total",
        "Points of dead letters that went through the routing table again.",
        |view| view.backends(|book| book.replayed.get()),
    ),
    counter(
        "pointsman_lost_parts_total",
        "Parts of delivered points that the backend has no way to say, by reason.",
        |view| view.backend_reasons("reason", |book| &book.lost_parts, &["unrepresentable"]),
    ),
    gauge(
        "pointsman_held_points",
        "Points neither delivered nor dropped yet, by where they are.",
        View::held,
    ),
    counter(
        "pointsman_inbox_wait_seconds_bucket",
        "Points that took no longer than `le` from being parsed and routed to being encoded.",
        View::inbox_waits,
    ),
    counter("pointsman_inbox_wait_seconds_count", "Points that were encoded one by one.", |view| {
        view.backends(|book| book.inbox_waits.points())
    }),
    gauge(
        "pointsman_inbox_wait_seconds_sum",
        "How long these took from being parsed and routed to being encoded, together.",
        |view| view.backends(|book| book.inbox_waits.total().as_secs_f64()),
    ),
    gauge(
        "pointsman_queued_points",
        "Points in the queue, in memory or on disk, the payload in flight among them.",
        |view| view.backends(|book| float(book.queued.get())),
    ),
    gauge("pointsman_queued_bytes", "Bytes in the queue, in memory or on disk.", |view| {
        view.backends(|book| float(book.queued_bytes.get()))
    }),
    gauge(
        "pointsman_queue_oldest_seconds",
        "Age of the oldest payload in the queue; 0 when it is empty.",
        |view| view.backends(|book| book.oldest_seconds(view.now)),
    ),
    gauge(
        "pointsman_dead_letters_points",
        "Points that the backend refused for good and that are kept.",
        |view| view.backends(|book| float(book.dead_letters.get())),
    ),
    gauge("pointsman_aggregate_series", "Series held by the windows.", |view| {
        view.backends(|book| float(book.series.get()))
    }),
    counter(
        "pointsman_noticed_total",
        "Things noticed on the way that cost no point, by kind.",
        |view| {
            let mut noticed = view.listener_reasons(
                "kind",
                |book| &book.noticed,
                ["unknown_field", "repeated_request"],
            );
            noticed.extend(view.backend_reasons(
                "kind",
                |book| &book.noticed,
                &["time_moved", "name_collision", "spool_damaged", "dead_letters_damaged"],
            ));
            noticed
        },
    ),
    counter("pointsman_reloads_total", "Configurations applied while running.", |view| {
        vec![(Vec::new(), view.reloads)]
    }),
    counter("pointsman_reload_failures_total", "Configurations refused while running.", |view| {
        vec![(Vec::new(), view.reloads_failed)]
    }),
    gauge("pointsman_build_info", "Always 1; the version is its label.", |_| {
        vec![(vec![("version", env!("CARGO_PKG_VERSION").to_owned())], 1.0)]
    }),
    gauge("pointsman_uptime_seconds", "Since the gateway started.", |view| {
        vec![(Vec::new(), seconds(view.now.0.saturating_sub(view.started.0)))]
    }),
    gauge(
        "process_start_time_seconds",
        "When the gateway started, in seconds since 1970.",
        |view| vec![(Vec::new(), seconds(view.started.0))],
    ),
];

/// One line of the table.
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) read: Read,
}

/// Where the samples come from, which also tells the type.
pub(super) enum Read {
    Counter(fn(&View) -> Vec<Sample<u64>>),
    Gauge(fn(&View) -> Vec<Sample<f64>>),
}

const fn counter(
    name: &'static str,
    help: &'static str,
    read: fn(&View) -> Vec<Sample<u64>>,
) -> Metric {
    Metric { name, help, read: Read::Counter(read) }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    read: fn(&View) -> Vec<Sample<f64>>,
) -> Metric {
    Metric { name, help, read: Read::Gauge(read) }
}

/// Why points are denied, shown with 0 so that an alert sees the first one.
const KNOWN_DENIALS: &[&str] = &[
    "name",
    "no_principal",
    "quota_new_series_per_hour",
    "quota_points_per_second",
    "quota_series",
    "reserved_tag",
    "scope",
];

/// The reasons that any lane may have, shown with 0 so that an alert sees the first one.
const KNOWN_DROPS: &[&str] = &[
    "dead_letters_damaged",
    "dead_letters_full",
    "empty_name",
    "not_finite",
    "purged",
    "queue_full",
    "sample_limit",
    "series_limit",
    "shutdown",
    "spool_damaged",
    "too_large",
    "unrepresentable",
];

/// The reasons of refusal that every kind of backend may have, shown with 0 likewise.
const KNOWN_REFUSALS: &[&str] = &["too_large"];
