package httpd_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"millrace/internal/httpd"
)

// Clients that begin zstd bodies and then stop keep no decoder, so the bodies of other clients are read, whatever
// their size.
func TestUnfinishedZstd(t *testing.T) {
	begun := make(chan struct{}, 100)
	s := serve(t, httpd.Config{MaxBody: 1 << 20}, func(s *httpd.Server) {
		echo(s)
		s.App.Post("/begin", func(c *fiber.Ctx) error {
			memory := growing()
			_, err := s.ReadBody(c, 0, func(n, at int) ([]byte, error) {
				if at == 0 {
					begun <- struct{}{}
				}
				return memory(n, at)
			})
			begun <- struct{}{} // also after a refusal
			return err
		})
	})
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	request := func(path string, announced int, body []byte) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\n%sContent-Encoding: zstd\r\nContent-Length: %d\r\n\r\n%s", path, host,
			announced, body)
	}
	part := z.EncodeAll(noise[:300_000], nil)
	var open []*peer
	for range 40 {
		p := s.dial(t)
		p.send(request("/begin", len(part), part[:200_000]))
		<-begun
		open = append(open, p)
	}
	for _, plain := range [][]byte{nil, noise[:1], noise[:16<<10], noise[:70_000], noise[:1<<20-100],
		bytes.Repeat([]byte("a"), 1<<20)} {
		packed := z.EncodeAll(plain, nil)
		chunked := fmt.Sprintf("POST /echo HTTP/1.1\r\n%sContent-Encoding: zstd\r\nTransfer-Encoding: chunked\r\n\r\n",
			host)
		if len(packed) > 0 {
			chunked += fmt.Sprintf("%x\r\n%s\r\n", len(packed), packed)
		}
		for form, text := range map[string]string{"sized": request("/echo", len(packed), packed),
			"chunked": chunked + "0\r\n\r\n"} {
			p := s.dial(t)
			p.send(text)
			if a := p.receive(); a.StatusCode != 200 || a.body != string(plain) {
				t.Errorf("%s, %d bytes: %d, %d bytes, %s", form, len(plain), a.StatusCode, len(a.body), a.Error)
			}
		}
	}
	for _, p := range open {
		p.Close()
	}
}

// Bytes of a body after the end of its coding are an error and are not read as the next request. A request after the
// body is read, however the body was sent.
func TestNothingFollowsACoding(t *testing.T) {
	s := serve(t, httpd.Config{}, echo)
	const next = "GET /hello HTTP/1.1\r\n" + host + "\r\n"
	for coding, open := range map[string]func(io.Writer) io.WriteCloser{
		"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
		"zstd": func(w io.Writer) io.WriteCloser {
			z, err := zstd.NewWriter(w)
			if err != nil {
				t.Fatal(err)
			}
			return z
		},
	} {
		var z bytes.Buffer
		w := open(&z)
		_, _ = w.Write([]byte("ab"))
		_ = w.Close()
		head := "POST /echo HTTP/1.1\r\n" + host + "Content-Encoding: " + coding + "\r\n"
		sized := func(body string) string {
			return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
		}
		chunked := func(body string) string {
			return fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", head, len(body), body)
		}
		for form, frame := range map[string]func(string) string{"sized": sized, "chunked": chunked} {
			p := s.dial(t)
			p.send(frame(z.String()) + next)
			for i, want := range []string{"ab", "hello"} {
				if a := p.receive(); a.StatusCode != 200 || a.body != want {
					t.Errorf("%s, %s, reply %d: %d %q %s", coding, form, i, a.StatusCode, a.body, a.Error)
				}
			}
			for _, length := range []int{z.Len(), 8 << 10, 100 << 10} { // where the hidden request begins
				p = s.dial(t)
				p.send(frame(z.String() + strings.Repeat("x", length-z.Len()) + next))
				if a := p.receive(); a.StatusCode != 400 {
					t.Errorf("%s, %s, with a request after %d bytes: %d %q", coding, form, length, a.StatusCode, a.body)
				}
				_ = p.Conn.(*net.TCPConn).CloseWrite() // the server then closes, too
				if rest, _ := io.ReadAll(p.r); bytes.Contains(rest, []byte("hello")) {
					t.Errorf("%s, %s: the request after %d bytes was answered", coding, form, length)
				}
			}
		}
	}
}
