"""The kinds of endings of a request."""

from enum import IntFlag


class HTTPStatusCode(IntFlag):
    """How a request ended; statuses maps each to the status of the HTTP response."""

    OK = 1
    BAD_REQUEST = 2
    VALIDATION_ERROR = 4
    INTERNAL_ERROR = 8
    TIMEOUT_ERROR = 16
    STREAM_EVENT = 32768


statuses = {
    HTTPStatusCode.OK: 200,
    HTTPStatusCode.BAD_REQUEST: 400,
    HTTPStatusCode.VALIDATION_ERROR: 422,
    HTTPStatusCode.INTERNAL_ERROR: 500,
    HTTPStatusCode.TIMEOUT_ERROR: 408,
}
