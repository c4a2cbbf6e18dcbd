// Package podmantest runs Podman for tests of container models.
package podmantest

import (
	"archive/tar"
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/testneeds"
)

// Service is a Podman service with storage of its own.
type Service struct {
	Socket string // path of the service's socket
	t      testing.TB
	path   string
	flags  []string
}

// Start starts a service, which ends with the test. At the end of the test, no container and no network
// may be left. Under -short the
// test is skipped.
func Start(t testing.TB) *Service {
	t.Helper()
	if testing.Short() {
		t.Skip("make check runs the tests with podman")
	}
	path := testneeds.Program(t, "podman")
	testneeds.Program(t, "runc")
	if os.Getuid() != 0 {
		t.Skip("podman with runc needs root here")
	}
	dir, err := os.MkdirTemp("", "millrace-pod-") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{Socket: filepath.Join(dir, "s"), t: t, path: path, flags: []string{
		"--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"), "--storage-driver", "vfs",
		"--cgroup-manager", "cgroupfs", "--events-backend", "file", "--runtime", "runc", "--log-level", "error",
		"--tmpdir", filepath.Join(dir, "tmp"), "--network-config-dir", filepath.Join(dir, "networks"),
	}}
	t.Cleanup(func() {
		_, _ = s.Do("rm", "--all", "--force", "--time", "0")
		_, _ = s.Do("unshare", "true")
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	cmd := exec.Command(path, append(s.flags, "system", "service", "--time", "0", "unix://"+s.Socket)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Dir = dir // conmon writes files to its folder
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left := s.Containers(); left != "" {
			t.Errorf("containers are left: %s", left)
		}
		if left := s.Networks(); len(left) > 0 {
			t.Errorf("networks are left: %v", left)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("podman: %s", log.String())
		}
	})
	for {
		c, err := net.Dial("unix", s.Socket)
		if err == nil {
			_ = c.Close()
			return s
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Do runs a command of podman and returns the output.
func (s *Service) Do(args ...string) (string, error) {
	out, err := exec.Command(s.path, append(s.flags, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// Program writes a program podman that uses the storage of the service, and returns its folder. Containers get limits
// that machines without all rights can set.
func (s *Service) Program() (dir string) {
	s.t.Helper()
	dir = s.t.TempDir()
	conf := filepath.Join(dir, "containers.conf")
	if err := os.WriteFile(conf, []byte("[containers]\ndefault_ulimits = [\"nofile=1024:1024\", "+
		"\"nproc=1024:1024\"]\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	testneeds.WriteProgram(s.t, filepath.Join(dir, "podman"), "#!/bin/sh\nCONTAINERS_CONF="+conf+" exec "+s.path+" "+
		strings.Join(s.flags, " ")+" \"$@\"\n")
	return dir
}

// Containers returns the ids of all containers, one a line.
func (s *Service) Containers() string {
	out, err := s.Do("ps", "--all", "--quiet", "--no-trunc")
	if err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	return out
}

// Networks returns the names of the networks, except Podman's own.
func (s *Service) Networks() []string {
	out, err := s.Do("network", "ls", "--quiet", "--filter", "driver=bridge")
	if err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	return slices.DeleteFunc(strings.Fields(out), func(name string) bool { return name == "podman" })
}

// Import makes an image with a static program in the root folder, and changes such as ENTRYPOINT ["/program"].
func (s *Service) Import(name, program string, changes ...string) {
	s.t.Helper()
	b, err := os.ReadFile(program)
	if err != nil {
		s.t.Fatal(err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	_ = w.WriteHeader(&tar.Header{Name: filepath.Base(program), Mode: 0o755, Size: int64(len(b))})
	if _, err := w.Write(b); err != nil || w.Close() != nil {
		s.t.Fatal(err)
	}
	args := append(s.flags, "import")
	for _, c := range changes {
		args = append(args, "--change", c)
	}
	cmd := exec.Command(s.path, append(args, "-", name)...)
	cmd.Stdin = &layer
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("import: %v: %s", err, out)
	}
}

// Build builds a static program of a package into a folder of the test, and returns the path.
func Build(t testing.TB, pkg, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", "build", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}
