"""Names of response headers, and defaults of the metrics."""

HEADER_METRICS_REQUEST_LATENCY = "metrics-request-latency"
HEADER_METRICS_DISPATCH_LATENCY = "metrics-dispatch-latency"

PROMETHEUS_BUCKETS = [
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    1.5,
    2,
    2.5,
    3,
    3.5,
    4,
    4.5,
    5,
    7.5,
    10,
    30,
    60,
]  # seconds
PROMETHEUS_ENDPOINT = "/metrics"
