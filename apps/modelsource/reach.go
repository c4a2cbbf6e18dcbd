package modelsource

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/minio/minio-go/v7"

	"millrace/internal/outbound"
)

// unreached marks an error for isUnreached.
type unreached struct{ error }

func (u unreached) Unwrap() error { return u.error }

// isUnreached reports whether an error is of the network, or of a server that cannot answer now. Other errors, such as
// a refused token or certificate and a missing repository, are answers about the source.
func isUnreached(err error) bool {
	var coded interface{ StatusCode() int } // of go-git
	var s3 minio.ErrorResponse
	var op *net.OpError
	var timed net.Error
	switch {
	case errors.As(err, new(unreached)):
		return true
	case outbound.IsRefusal(err), errors.As(err, new(*tls.CertificateVerificationError)),
		errors.As(err, new(tls.RecordHeaderError)):
		return false
	case errors.As(err, &coded):
		return isBusy(coded.StatusCode())
	case errors.As(err, &s3):
		return isBusy(s3.StatusCode)
	case errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error"): // an alert of TLS
		return false
	case op != nil && op.Net == "unix": // the agent of SSH
		return false
	case op != nil, errors.As(err, new(*net.DNSError)), errors.As(err, &timed) && timed.Timeout():
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded)
}

// isBusy reports whether a server with this status may answer a later request.
func isBusy(status int) bool {
	return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests ||
		status == http.StatusRequestTimeout
}
