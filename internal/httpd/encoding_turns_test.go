package httpd

import (
	"bytes"
	"io"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"millrace/internal/bulk"
)

// writing is a body that records its writer.
type writing struct {
	text []byte
	to   io.Writer
}

func (w *writing) WriteTo(to io.Writer) (int64, error) {
	w.to = to
	n, err := to.Write(w.text)
	return int64(n), err
}

// checking is a writer that records the number of running long computations.
type checking struct {
	t    *testing.T
	text []byte
}

func (c *checking) Write(p []byte) (int, error) {
	if n := bulk.Running(); n != 1 || len(p) > bulk.Least {
		c.t.Errorf("%d bytes are written while %d computations run", len(p), n)
	}
	c.text = append(c.text, p...)
	return len(p), nil
}

// A long reply is compressed in pieces, each in a turn; a short reply takes no turn.
func TestPackTakesTurns(t *testing.T) {
	app := fiber.New()
	for size, takes := range map[int]bool{bulk.Least - 1: false, bulk.Least: true, 5*bulk.Least + 1: true} {
		for _, coding := range []string{codingGzip, codingDeflate} {
			c := app.AcquireCtx(&fasthttp.RequestCtx{})
			c.Request().Header.Set(fiber.HeaderAcceptEncoding, coding)
			body := &writing{text: bytes.Repeat([]byte("0.5,"), size/4+1)[:size]}
			p, ok := Pack(c, size, func(n int) []byte { return make([]byte, n) }, body)
			app.ReleaseCtx(c)
			if _, in := body.to.(turns); !ok || p.Coding != coding || in != takes {
				t.Errorf("%d bytes in %s: written to a %T, %v", size, coding, body.to, ok)
			}
		}
	}
	text := bytes.Repeat([]byte("0123456789"), bulk.Least/2)
	to := &checking{t: t}
	if n, err := (turns{to}).Write(text); n != len(text) || err != nil || !bytes.Equal(to.text, text) || bulk.Running() != 0 {
		t.Errorf("%d of %d bytes were written, %v; %d computations run", n, len(text), err, bulk.Running())
	}
}
