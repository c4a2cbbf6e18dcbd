package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"millrace/internal/inferencepb"
)

// handoverSocket returns the path of a socket; the path of t.TempDir may be too long.
func handoverSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "millrace-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "handover.sock")
}

const inferSame = `{"inputs":[{"name":"input","datatype":"FP32","shape":[1],"data":[2.5]}]}`

// askSame sends a request that no client repeats by itself, and checks the reply.
func askSame(c *http.Client, url string) error {
	r, err := c.Post(url+"/v2/models/same/infer", "application/json", strings.NewReader(inferSame))
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err == nil && (r.StatusCode != http.StatusOK || !strings.Contains(string(body), "2.5")) {
		err = fmt.Errorf("%s: %s", r.Status, body)
	}
	return err
}

// serverName returns the name of the server that answers a new connection.
func serverName(t *testing.T, url string) string {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get(url + "/v2")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// A server that is replaced twice, by the setting handover, loses none of 10,000 requests: on kept connections, on new
// connections, on connections that were open and silent before, and on gRPC.
func TestHandover(t *testing.T) {
	socket := handoverSocket(t)
	start := func(name string) (*process, string) {
		p := begin(t, command(t, "serve", "--model", "same=identity", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
			"--name", name, "--handover", "unix:"+socket))
		return p, p.until("millrace is ready: ")
	}
	first, line := start("first")
	url := httpAddr.FindString(line)
	grpcAddr := strings.TrimPrefix(regexp.MustCompile(`grpc://\S+`).FindString(line), "grpc://")

	var sent, failed atomic.Int64
	var clients sync.WaitGroup
	done := make(chan struct{})
	client := func(ask func() error) {
		clients.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := ask(); err != nil && failed.Add(1) < 10 {
					t.Errorf("request %d: %v", sent.Load(), err)
				}
				sent.Add(1)
			}
		})
	}
	for i := range 6 {
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: i%2 == 1}}
		client(func() error { return askSame(c, url) })
	}
	conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	model := inferencepb.NewGRPCInferenceServiceClient(conn)
	client(func() error {
		r, err := model.ServerMetadata(t.Context(), &inferencepb.ServerMetadataRequest{})
		if err == nil && r.Name == "" {
			err = errors.New("a reply without a name")
		}
		return err
	})
	reach := func(n int64) {
		for sent.Load() < n && t.Context().Err() == nil && failed.Load() == 0 {
			_ = askSame(http.DefaultClient, url)
		}
	}
	silent := func(used bool) keptRequest {
		t.Helper()
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		k := keptRequest{c, bufio.NewReader(c)}
		if used {
			if closed := k.ask(t); closed {
				t.Error("the server closes a connection before it leaves")
			}
		}
		return k
	}
	replace := func(old *process, name string, at int64) *process {
		t.Helper()
		reach(at)
		kept := []keptRequest{silent(false), silent(true)}
		next, line := start(name)
		if httpAddr.FindString(line) != url {
			t.Errorf("the next server is at %s, the first at %s", line, url)
		}
		if answer := serverName(t, url); !strings.Contains(answer, `"`+name+`"`) {
			t.Errorf("a new connection reaches %s", answer)
		}
		for i, k := range kept {
			if closed := k.ask(t); !closed {
				t.Errorf("the server that leaves does not close the connection %d after its reply", i)
			}
			_ = k.Close()
		}
		http.DefaultClient.CloseIdleConnections()
		if rest, err := io.ReadAll(old.lines); err != nil || len(rest) > 0 {
			t.Errorf("the server printed %s, %v", rest, err)
		}
		if err := old.end(); err != nil {
			t.Errorf("the server that left: %v\n%s", err, &old.stderr)
		}
		return next
	}
	second := replace(first, "second", 2000)
	third := replace(second, "third", 6000)
	reach(10_000)
	close(done)
	clients.Wait()
	t.Logf("%d requests, %d lost", sent.Load(), failed.Load())
	if _, code := third.signal(os.Interrupt); code != 0 {
		t.Errorf("exit status %d\n%s", code, &third.stderr)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// keptRequest is a connection for several requests, one after the other.
type keptRequest struct {
	net.Conn
	in *bufio.Reader
}

// ask sends a request, and reports whether the server closes the connection behind its reply.
func (k keptRequest) ask(t *testing.T) (closed bool) {
	t.Helper()
	if _, err := fmt.Fprintf(k, "POST /v2/models/same/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s",
		len(inferSame), inferSame); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(k.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	if body, err := io.ReadAll(r.Body); err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("%s: %s, %v", r.Status, body, err)
	}
	return r.Close
}

// A server that cannot become ready leaves the other server alone.
func TestHandoverFailure(t *testing.T) {
	socket := handoverSocket(t)
	args := []string{"serve", "--model", "same=identity", "--http", "127.0.0.1:0", "--grpc", "off", "--handover",
		"unix:" + socket}
	first, addr := readyServer(t, command(t, args...))
	program := filepath.Join(t.TempDir(), "broken.py")
	if err := os.WriteFile(program, []byte("raise ValueError('broken')\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := finish(t, command(t, append(args, "--model", "broken="+program)...))
	if code != 1 || !strings.Contains(stderr, "broken") {
		t.Errorf("exit status %d: %s", code, stderr)
	}
	if err := askSame(http.DefaultClient, "http://"+addr); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
	if _, code := first.signal(os.Interrupt); code != 0 {
		t.Errorf("exit status %d\n%s", code, &first.stderr)
	}
}
