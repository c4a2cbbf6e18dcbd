package videotest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// Hold relays RTSP connections over TCP to a camera's address, in the form of Camera.Addr. For each connection, Hold
// keeps the first pictures back until all of them have come, and then forwards them at once. The end of the test ends
// Hold.
func Hold(t *testing.T, camera string, pictures int) (addr string) {
	t.Helper()
	host, path, _ := strings.Cut(camera, "/")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var tasks sync.WaitGroup
	t.Cleanup(func() {
		_ = ln.Close()
		tasks.Wait()
	})
	tasks.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return // closed
			}
			tasks.Go(func() {
				defer conn.Close()
				up, err := net.Dial("tcp", host)
				if err != nil {
					return
				}
				tasks.Go(func() {
					_, _ = io.Copy(up, conn)
					_ = up.Close()
				})
				_ = hold(conn, bufio.NewReader(up), pictures)
			})
		}
	})
	return fmt.Sprintf("%v/%s", ln.Addr(), path)
}

// hold copies replies and packets.
func hold(to io.Writer, from *bufio.Reader, pictures int) error {
	var held bytes.Buffer
	for n := 0; ; {
		head, err := from.Peek(4)
		if err != nil {
			return err
		}
		if head[0] != '$' {
			if err := copyReply(to, from); err != nil {
				return err
			}
			continue
		}
		channel, size := head[1], 4+int64(head[2])<<8+int64(head[3])
		begin := held.Len()
		if _, err := io.CopyN(&held, from, size); err != nil {
			return err
		}
		if channel == 0 && n < pictures && held.Bytes()[begin+5]&0x80 != 0 { // the last packet of a picture
			n++
		}
		if n == pictures {
			if _, err := held.WriteTo(to); err != nil {
				return err
			}
		}
	}
}

// copyReply copies a reply with its body.
func copyReply(to io.Writer, from *bufio.Reader) error {
	length := int64(0)
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return err
		}
		_, _ = fmt.Sscanf(strings.ToLower(line), "content-length: %d", &length)
		if _, err := io.WriteString(to, line); err != nil {
			return err
		}
		if strings.TrimSpace(line) == "" {
			_, err := io.CopyN(to, from, length)
			return err
		}
	}
}
