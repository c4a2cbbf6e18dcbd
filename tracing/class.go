package tracing

// HTTPClass returns the class of an HTTP status, "1xx" to "5xx", or "other".
func HTTPClass(status int) string {
	if k := status / 100; k >= 1 && k <= 5 {
		return [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}[k-1]
	}
	return "other"
}

// GRPCClass returns the class of a gRPC code: "ok", "client_error" or "server_error".
func GRPCClass(code int) string {
	switch code {
	case 0:
		return "ok"
	case 1, 3, 5, 6, 7, 8, 9, 10, 11, 16:
		return "client_error"
	}
	return "server_error"
}

// GRPCName returns the name of a gRPC code in the Python client, for example INVALID_ARGUMENT, or OTHER.
func GRPCName(code int) string {
	if code >= 0 && code < len(grpcNames) {
		return grpcNames[code]
	}
	return "OTHER"
}

var grpcNames = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
	"FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS",
	"UNAUTHENTICATED",
}
