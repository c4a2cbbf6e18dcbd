package rest_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"testing"

	"github.com/gofiber/fiber/v2"

	"millrace/server"
	"millrace/workers"
)

// hammer repeats the same request on several connections and reads each reply to its end.
func hammer(b *testing.B, addr, path string, body []byte, headers string) {
	request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n", path, len(body),
		headers)
	request = append(request, body...)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	b.SetParallelism(8) // connections for each core
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		r := bufio.NewReaderSize(c, 64<<10)
		for pb.Next() {
			if _, err := c.Write(request); err != nil {
				b.Error(err)
				return
			}
			if err := skipReply(r); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func skipReply(r *bufio.Reader) error {
	n := 0
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
			return fmt.Errorf("the reply is %q", line)
		}
		if line = textproto.TrimBytes(line); len(line) == 0 {
			_, err := io.CopyN(io.Discard, r, int64(n))
			return err
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if n, err = strconv.Atoi(string(v)); err != nil {
				return err
			}
		}
	}
}

// BenchmarkInfer compares infer with a handler that reads and returns the same body.
func BenchmarkInfer(b *testing.B) {
	s, err := server.New(server.Config{HTTP: "127.0.0.1:0", GRPC: "off"})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() { cancel(); <-done }()
	<-s.Ready()
	if _, err := s.Models().LoadConfig(ctx, workers.Config{Name: "identity", Kind: "identity"}, true); err != nil {
		b.Fatal(err)
	}
	bare := fiber.New(fiber.Config{DisableStartupMessage: true, BodyLimit: 64 << 20})
	bare.Post("/echo", func(c *fiber.Ctx) error { return c.Send(c.Body()) })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = bare.Listener(ln) }()
	defer bare.Shutdown()

	for _, n := range []int{1 << 10, 30 << 10, 600 << 10} {
		data := make([]byte, n)
		json := fmt.Sprintf(`{"parameters":{"binary_data_output":true},"inputs":[{"name":"x","datatype":"UINT8",`+
			`"shape":[%d],"parameters":{"binary_data_size":%d}}]}`, n, n)
		body := append([]byte(json), data...)
		header := fmt.Sprintf("Inference-Header-Content-Length: %d\r\n", len(json))
		b.Run(fmt.Sprintf("bare/%dKiB", n>>10), func(b *testing.B) {
			hammer(b, ln.Addr().String(), "/echo", body, header)
		})
		b.Run(fmt.Sprintf("binary/%dKiB", n>>10), func(b *testing.B) {
			hammer(b, s.Addr("http"), "/v2/models/identity/infer", body, header)
		})
	}
	image := []byte(`{"parameters":{"binary_data_output":true},"inputs":[{"name":"x","datatype":"UINT8",` +
		`"shape":[224,224,3],"data":[`)
	for i := range 224 * 224 * 3 {
		image = append(strconv.AppendInt(image, int64(i*31%256), 10), ',')
	}
	image = append(image[:len(image)-1], "]}]}"...)
	b.Run("bare/json-image", func(b *testing.B) { hammer(b, ln.Addr().String(), "/echo", image, "") })
	b.Run("json-image", func(b *testing.B) {
		hammer(b, s.Addr("http"), "/v2/models/identity/infer", image, "Content-Type: application/json\r\n")
	})
}
