package httpd

import (
	"io"
	"path"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"millrace/stream/coded"
)

// uploadPiece is how much of a body Upload has in memory.
const uploadPiece = 64 << 10

// AllowUploads lets requests to a path have bodies above Config.MaxBody, which their handler reads with Upload. In a
// pattern such as /a/*/b, * is any segment of the path. AllowUploads must be called before Serve.
func (s *Server) AllowUploads(pattern string) { s.uploads = append(s.uploads, pattern) }

// isUpload reports whether a request may have a body of any length.
func (s *Server) isUpload(c *fasthttp.RequestCtx) bool {
	for _, pattern := range s.uploads {
		if ok, err := path.Match(pattern, string(c.Path())); ok && err == nil {
			return true
		}
	}
	return false
}

// Upload writes the body of a request to to, piece by piece, and returns the length. Errors: too_large above most
// bytes, naming the setting; unsupported for a content coding (status 415); the errors of ReadBody; and an error of
// to, unchanged.
func (s *Server) Upload(c *fiber.Ctx, most int64, setting string, to io.Writer) (int64, error) {
	if coding := strings.TrimSpace(c.Get(fiber.HeaderContentEncoding)); coding != "" && coding != "identity" {
		return 0, WithStatus(fasthttp.StatusUnsupportedMediaType, coded.Errorf(coded.Unsupported, "Content-Encoding",
			"%.40q is not taken here: send the body as it is", coding))
	}
	n := int64(c.Request().Header.ContentLength())
	if n > most {
		return 0, coded.Errorf(coded.TooLarge, setting, "the body has %d bytes, and at most %d are taken", n, most)
	}
	body := bodyOf(c.Context())
	if body == nil || n == 0 {
		return 0, nil
	}
	size, err := copyUpload(to, &paced{pace: pace{c: c}, body: body}, most)
	switch {
	case err != nil && err.write:
		return size, err.error
	case err != nil:
		return size, readError(err.error, int(n))
	case size > most:
		return size, coded.Errorf(coded.TooLarge, setting, "the body has more than %d bytes", most)
	case n >= 0 && size < n:
		return size, readError(io.ErrUnexpectedEOF, int(n))
	}
	return size, stillValid(c)
}

// uploadError is the error of one side of a copy.
type uploadError struct {
	error
	write bool
}

// copyUpload copies at most one byte more than most.
func copyUpload(to io.Writer, from io.Reader, most int64) (size int64, failed *uploadError) {
	piece := make([]byte, uploadPiece)
	for size <= most {
		n, err := from.Read(piece)
		if n > 0 {
			size += int64(n)
			if _, err := to.Write(piece[:n]); err != nil {
				return size, &uploadError{err, true}
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return size, &uploadError{err, false}
		}
	}
	return size, nil
}
