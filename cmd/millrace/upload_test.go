package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"millrace/client"
)

// throttle forwards connections to addr. act is called with each piece from a client, with the bytes so far, and may
// return false to close the connection.
func throttle(t *testing.T, addr string, act func(sent int64) bool) (at string, sent *atomic.Int64) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	sent = new(atomic.Int64)
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = in.Close() }()
				out, err := net.Dial("tcp", addr)
				if err != nil {
					return
				}
				defer func() { _ = out.Close() }()
				go func() {
					_, _ = io.Copy(in, out)
					_ = in.Close()
				}()
				buf := make([]byte, 64<<10)
				for {
					n, err := in.Read(buf)
					if _, failed := out.Write(buf[:n]); err != nil || failed != nil || !act(sent.Add(int64(n))) {
						return
					}
				}
			}()
		}
	}()
	return ln.Addr().String(), sent
}

// TestSubmitLarge: a large file arrives although the connection is cut and the server is killed in between, and few
// bytes are sent twice. A repeated command with the same key sends nothing.
func TestSubmitLarge(t *testing.T) {
	t.Parallel()
	const size = 80 << 20
	file := filepath.Join(t.TempDir(), "large.bin")
	text := make([]byte, size)
	_, _ = rand.Read(text)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	f := newFarm(t)
	server, victim := f.addr, f.p
	killed := make(chan struct{})
	var cut, kill atomic.Bool
	addr, sent := throttle(t, server, func(n int64) bool {
		if n > 50<<20 && kill.CompareAndSwap(false, true) {
			_ = victim.cmd.Process.Kill()
			_ = victim.end()
			close(killed)
			return false
		}
		return n < 20<<20 || !cut.CompareAndSwap(false, true)
	})
	args := []string{"tasks", "submit", "any", file, "--idempotency-key", "once", "--addr", addr}
	p := begin(t, command(t, args...))
	<-killed
	f.start(server)
	out, err := io.ReadAll(p.lines)
	if code := status(t, p.end()); err != nil || code != 0 || !strings.Contains(p.stderr.String(), "trying again") {
		t.Fatalf("exit status %d, %v: %s%s", code, err, out, &p.stderr)
	}
	list, _, err := f.cl.Tasks(t.Context(), client.TaskQuery{})
	if err != nil || len(list) != 1 || list[0].Input.SHA256 != hex.EncodeToString(sum[:]) ||
		list[0].Input.Name != "large.bin" {
		t.Fatalf("the tasks: %+v, %v", list, err)
	}
	if n := sent.Load(); n > size+8<<20 {
		t.Errorf("%d MiB were sent for a file of %d MiB", n>>20, size>>20)
	}
	before := sent.Load()
	stdout, stderr, code := millrace(t, args...)
	if code != 0 || strings.TrimSpace(stdout) != list[0].ID || sent.Load()-before > 1<<16 {
		t.Errorf("again: exit status %d, %d bytes: %s%s", code, sent.Load()-before, stdout, stderr)
	}
}
