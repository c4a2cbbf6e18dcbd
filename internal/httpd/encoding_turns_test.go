package httpd

import (
	"bytes"
	"io"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"millrace/internal/processors"
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
	t     *testing.T
	turns *processors.Turns
	text  []byte
}

func (c *checking) Write(p []byte) (int, error) {
	if n := c.turns.Running(); n != 1 || len(p) > processors.LongText {
		c.t.Errorf("%d bytes are written while %d computations run", len(p), n)
	}
	c.text = append(c.text, p...)
	return len(p), nil
}

// A long reply is compressed in pieces, each in a turn; a short reply takes no turn.
func TestPackTakesTurns(t *testing.T) {
	app, all := fiber.New(), processors.NewTurns(2)
	for size, takes := range map[int]bool{processors.LongText - 1: false, processors.LongText: true,
		5*processors.LongText + 1: true} {
		for _, coding := range []string{codingGzip, codingDeflate} {
			c := app.AcquireCtx(&fasthttp.RequestCtx{})
			c.Request().Header.Set(fiber.HeaderAcceptEncoding, coding)
			body := &writing{text: bytes.Repeat([]byte("0.5,"), size/4+1)[:size]}
			p, ok := Pack(c, all, size, func(n int) []byte { return make([]byte, n) }, body)
			app.ReleaseCtx(c)
			if _, in := body.to.(turnWriter); !ok || p.Coding != coding || in != takes {
				t.Errorf("%d bytes in %s: written to a %T, %v", size, coding, body.to, ok)
			}
		}
	}
	text := bytes.Repeat([]byte("0123456789"), processors.LongText/2)
	to := &checking{t: t, turns: all}
	if n, err := (turnWriter{all, to}).Write(text); n != len(text) || err != nil || !bytes.Equal(to.text, text) ||
		all.Running() != 0 {
		t.Errorf("%d of %d bytes were written, %v; %d computations run", n, len(text), err, all.Running())
	}
}
