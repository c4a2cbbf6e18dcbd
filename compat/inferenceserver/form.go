package inferenceserver

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"millrace/internal/httpd"
	"millrace/stream"
)

// field is the field of forms with a zip file.
const field = "zip_file"

// copyZip copies the zip file in the form of a request to to. The form has the one field zip_file. The body has at
// most most bytes, a limit of the setting.
func (a *adapter) copyZip(c *fiber.Ctx, most int64, setting string, to io.Writer) error {
	kind, params, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	if err != nil || kind != fiber.MIMEMultipartForm || params["boundary"] == "" {
		return httpd.WithStatus(http.StatusUnsupportedMediaType, stream.Errorf(stream.Unsupported,
			fiber.HeaderContentType, "%.80q is no form: want multipart/form-data with the field %s",
			c.Get(fiber.HeaderContentType), field))
	}
	body, err := a.http.UploadBody(c, most, setting)
	if err != nil {
		return err
	}
	form := multipart.NewReader(body, params["boundary"])
	for there := false; ; there = true {
		part, err := form.NextRawPart()
		switch {
		case err == io.EOF && !there:
			return stream.Errorf(stream.InvalidArgument, field, "is missing: the form needs a zip file")
		case err == io.EOF:
			_, err := io.Copy(io.Discard, body)
			return err
		case err != nil:
			return formError(err)
		case part.FormName() != field:
			return stream.Errorf(stream.InvalidArgument, fieldName(part), "is no field of the form: want %s", field)
		case there:
			return stream.Errorf(stream.InvalidArgument, field, "is in the form twice")
		}
		if err := copyPart(to, part); err != nil {
			return err
		}
	}
}

// fieldName returns the name of a field for errors.
func fieldName(p *multipart.Part) string {
	if n := p.FormName(); n != "" && len(n) <= 64 {
		return n
	}
	return "form"
}

// The first bytes of a zip file with files, and of a zip file without files.
const (
	beginFiles = "PK\x03\x04"
	beginEmpty = "PK\x05\x06"
)

// copyPart copies a zip file.
func copyPart(to io.Writer, p *multipart.Part) error {
	begin := make([]byte, len(beginFiles))
	n, err := io.ReadFull(p, begin)
	switch text := string(begin[:n]); {
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return formError(err)
	case text != beginFiles && text != beginEmpty:
		return stream.Errorf(stream.InvalidArgument, field, "is no zip file")
	}
	if _, err := to.Write(begin); err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{partReader{p}}, make([]byte, 64<<10))
	return err
}

// partReader gives errors of a form a code.
type partReader struct{ *multipart.Part }

// Read implements io.Reader.
func (p partReader) Read(b []byte) (int, error) {
	n, err := p.Part.Read(b)
	if err != nil && err != io.EOF {
		err = formError(err)
	}
	return n, err
}

// formError gives an error of a form a code, unless the body has given the error one.
func formError(err error) error {
	if coded := (*stream.Error)(nil); errors.As(err, &coded) {
		return err
	}
	return stream.Errorf(stream.InvalidArgument, "", "the form cannot be read: %w", err)
}
