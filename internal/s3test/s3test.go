// Package s3test builds and runs an S3 server, versitygw, for tests. The package owns the program, its folder and its
// port on 127.0.0.1. The package must not know what is stored.
package s3test

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"millrace/internal/child"
	"millrace/internal/testbuild"
)

// Server is an S3 server.
type Server struct {
	Endpoint             string // http://127.0.0.1:PORT
	AccessKey, SecretKey string
	// OtherKey with OtherSecret is an access key without rights in the buckets.
	OtherKey, OtherSecret string

	t       testing.TB
	path    string
	folder  string // has a folder for each bucket
	process *child.Process
}

// users are the access keys beside the key of the server itself.
const users = `{"accessAccounts":{"other":{"access":"other","secret":"another secret","role":"user"}}}`

// Start runs a server with empty buckets until the test ends. Under -short the test is skipped.
func Start(t testing.TB, buckets ...string) *Server {
	t.Helper()
	s := &Server{AccessKey: "tasks", SecretKey: "a secret", OtherKey: "other", OtherSecret: "another secret", t: t,
		path: testbuild.Peer(t, "versitygw"), folder: t.TempDir()}
	for _, dir := range []string{"buckets", "metadata", "users"} {
		if err := os.Mkdir(filepath.Join(s.folder, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.folder, "users", "users.json"), []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, b := range buckets {
		if err := os.Mkdir(s.Path(b), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Endpoint = "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s.Run()
	t.Cleanup(s.Stop)
	return s
}

// Run starts the server again, at the same address with the same objects.
func (s *Server) Run() {
	s.t.Helper()
	addr := s.Endpoint[len("http://"):]
	args := []string{"--quiet", "--access", s.AccessKey, "--secret", s.SecretKey, "--port", addr, "--iam-dir",
		filepath.Join(s.folder, "users"), "posix", "--sidecar", filepath.Join(s.folder, "metadata"),
		filepath.Join(s.folder, "buckets")}
	p, err := child.Start(context.Background(), child.Spec{Path: s.path, Args: args,
		OnStderr: func(line []byte) { s.t.Logf("versitygw: %s", line) }})
	if err != nil {
		s.t.Fatal(err)
	}
	s.process = p
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(end) {
			s.t.Fatal(fmt.Errorf("versitygw does not start: %w", err))
		}
	}
}

// Stop kills the server.
func (s *Server) Stop() {
	if s.process != nil {
		_ = s.process.Stop(0)
		s.process = nil
	}
}

// Path returns the path of an object, KEY = BUCKET or BUCKET/NAME.
func (s *Server) Path(key string) string {
	return filepath.Join(s.folder, "buckets", filepath.FromSlash(key))
}

// Objects returns the names of the objects of a bucket.
func (s *Server) Objects(bucket string) (names []string) {
	s.t.Helper()
	err := fs.WalkDir(os.DirFS(s.Path(bucket)), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return names
}
