package gittest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"millrace/internal/testneeds"
)

// SSH is OpenSSH's server on this machine: a process for each connection.
type SSH struct {
	t          testing.TB
	Dir        string
	Port, User string
	Key        []byte // of the client, PEM
	Private    ed25519.PrivateKey
	KnownHosts string // file with the key of the host
}

// NewKey returns a private key in OpenSSH's form, and its line for authorized_keys.
func NewKey(t testing.TB) (private ed25519.PrivateKey, text []byte, public string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return private, pem.EncodeToMemory(block), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
}

// NewSSH starts a server for this user, with a new key of the host and of the client.
func NewSSH(t testing.TB) *SSH {
	t.Helper()
	sshd := testneeds.Program(t, "sshd")
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	s := &SSH{t: t, Dir: t.TempDir(), User: me.Username}
	if os.Geteuid() == 0 { // sshd of root wants this empty folder
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var public string
	s.Private, s.Key, public = NewKey(t)
	s.Write("authorized_keys", public)
	s.Write("sshd_config", fmt.Sprintf("HostKey %s/host\nAuthorizedKeysFile %s/authorized_keys\nStrictModes "+
		"no\nUsePAM "+
		"no\nPermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile none\n"+
		"PermitUserEnvironment no\n", s.Dir, s.Dir))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, s.Port, _ = net.SplitHostPort(ln.Addr().String())
	s.NewHostKey()
	s.KnownHosts = s.Write("known_hosts", s.HostLine())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			f, err := c.(*net.TCPConn).File()
			_ = c.Close()
			if err != nil {
				t.Error(err)
				return
			}
			p := exec.Command(sshd, "-i", "-e", "-f", filepath.Join(s.Dir, "sshd_config"))
			p.Stdin, p.Stdout = f, f
			var log bytes.Buffer
			p.Stderr = &log
			running.Go(func() {
				_ = p.Run() // the exit status depends on who ends the connection
				_ = f.Close()
				if testing.Verbose() {
					t.Logf("sshd: %s", log.Bytes())
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		running.Wait()
	})
	return s
}

// Write writes a file in Dir.
func (s *SSH) Write(name, text string) (path string) {
	s.t.Helper()
	path = filepath.Join(s.Dir, name)
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// Configure adds lines to the configuration of the server, for later connections.
func (s *SSH) Configure(lines string) {
	s.t.Helper()
	old, err := os.ReadFile(filepath.Join(s.Dir, "sshd_config"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.Write("sshd_config", string(old)+lines)
}

// NewHostKey gives the host a new key.
func (s *SSH) NewHostKey() {
	s.t.Helper()
	_, text, public := NewKey(s.t)
	s.Write("host", strings.TrimSpace(string(text)))
	s.Write("host.pub", public)
}

// HostLine is the line of the host for known_hosts.
func (s *SSH) HostLine() string {
	s.t.Helper()
	public, err := os.ReadFile(filepath.Join(s.Dir, "host.pub"))
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf("[127.0.0.1]:%s %s", s.Port, strings.TrimSpace(string(public)))
}

// URL returns the address of a path.
func (s *SSH) URL(path string) string { return "ssh://" + s.User + "@127.0.0.1:" + s.Port + path }
