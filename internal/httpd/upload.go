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

// Upload writes the body of a request to to, piece by piece, and returns the length. Errors: of UploadBody; an error of
// to, unchanged.
func (s *Server) Upload(c *fiber.Ctx, most int64, setting string, to io.Writer) (int64, error) {
	body, err := s.UploadBody(c, most, setting)
	if err != nil {
		return 0, err
	}
	size := uploadPiece
	if n := c.Request().Header.ContentLength(); n >= 0 {
		size = min(size, n+1) // and the end, without another read
	}
	return io.CopyBuffer(struct{ io.Writer }{to}, body, make([]byte, size))
}

// BodyStopper returns a function that ends the arrival of the body of a request, such as of a client whose connection
// is broken: a read that waits returns an error, and the connection is closed after the reply. Only while the handler
// runs may other goroutines call the function.
func (s *Server) BodyStopper(c *fiber.Ctx) (stop func()) {
	conn := connOf(c.Context().Conn())
	return func() {
		if conn != nil {
			_ = conn.CloseRead()
		}
	}
}

// UploadBody returns a reader of the body of a request. The reader is valid until the handler returns. Errors, also of
// Read: too_large above most bytes, naming the setting; unsupported for a content coding (status 415); the errors of
// ReadBody.
func (s *Server) UploadBody(c *fiber.Ctx, most int64, setting string) (io.Reader, error) {
	if coding := strings.TrimSpace(c.Get(fiber.HeaderContentEncoding)); coding != "" && coding != "identity" {
		return nil, WithStatus(fasthttp.StatusUnsupportedMediaType, coded.Errorf(coded.Unsupported, "Content-Encoding",
			"%.40q is not taken here: send the body as it is", coding))
	}
	n := int64(c.Request().Header.ContentLength())
	if n > most {
		return nil, coded.Errorf(coded.TooLarge, setting, "the body has %d bytes, and at most %d are taken", n, most)
	}
	body := bodyOf(c.Context())
	if body == nil || n == 0 {
		return struct{ io.Reader }{strings.NewReader("")}, nil
	}
	return &upload{paced: paced{pace: pace{c: c}, body: body}, announced: n, most: most, setting: setting}, nil
}

// upload is a body while the body is read.
type upload struct {
	paced
	announced int64 // Content-Length; negative for a body in chunks
	size      int64 // bytes read
	most      int64
	setting   string
	err       error // of each further Read
}

// Read implements io.Reader.
func (u *upload) Read(b []byte) (int, error) {
	if u.err != nil {
		return 0, u.err
	}
	n, err := u.paced.Read(b)
	u.size += int64(n)
	switch {
	case u.size > u.most:
		u.err = coded.Errorf(coded.TooLarge, u.setting, "the body has more than %d bytes", u.most)
	case u.size == u.announced, err == io.EOF && u.announced < 0:
		_ = u.c.Request().CloseBodyStream() // the connection is fit for further requests
		if u.err = stillValid(u.c); u.err == nil {
			u.err = io.EOF
		}
	case err == io.EOF:
		u.err = readError(io.ErrUnexpectedEOF, int(u.announced))
	case err != nil:
		u.err = readError(err, int(u.announced))
	}
	return n, u.err
}
