package source

import (
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"millrace/internal/gittest"
	"millrace/internal/sshclient"
	"millrace/internal/testneeds"
)

// options returns the key of the client and the host.
func options(t *testing.T, s *gittest.SSH) Options {
	t.Helper()
	key, err := sshclient.ParseKey("test", s.Key)
	if err != nil {
		t.Fatal(err)
	}
	return Options{Keys: []sshclient.Key{key}, KnownHosts: []string{s.KnownHosts}}
}

// TestFetchSSH fetches from OpenSSH's server with a key in memory.
func TestFetchSSH(t *testing.T) {
	s := gittest.NewSSH(t)
	r, first, second := history(t)
	bare := r.Bare()
	testReferences(t, s.URL(bare), first, second, false, options(t, s))
	refuses(t, s.URL(bare)+"@0000beef", options(t, s), "write all 40 digits")
	refuses(t, s.URL(filepath.Dir(bare)+"/none.git"), options(t, s), "the server said:", "none.git", "Compare the path")
}

// TestSSHKeys: keys come from an agent and from files, and never appear in errors.
func TestSSHKeys(t *testing.T) {
	s := gittest.NewSSH(t)
	r := gittest.New(t)
	r.Commit(map[string]string{"a.txt": "1"})
	url := s.URL(r.Bare())

	ring := agent.NewKeyring()
	if err := ring.Add(agent.AddedKey{PrivateKey: s.Private}); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(s.Dir, "agent")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { _ = agent.ServeAgent(ring, c); _ = c.Close() })
		}
	})
	defer serving.Wait()
	defer func() { _ = ln.Close() }()
	mustFetch(t, url, Options{Agent: socket, KnownHosts: []string{s.KnownHosts}})

	file := s.Write("id", strings.TrimSpace(string(s.Key)))
	key, err := sshclient.ReadKey(file)
	if err != nil {
		t.Fatal(err)
	}
	mustFetch(t, url, Options{Keys: []sshclient.Key{key}, KnownHosts: []string{s.KnownHosts}})
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := sshclient.ReadKey(file); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others can read: %v", err)
	}

	_, other, _ := gittest.NewKey(t)
	wrong, err := sshclient.ParseKey("wrong", other)
	if err != nil {
		t.Fatal(err)
	}
	refuses(t, url, Options{Keys: []sshclient.Key{wrong}, KnownHosts: []string{s.KnownHosts}},
		"the host accepts none of the key wrong for the user "+s.User, "--ssh-key")
	refuses(t, url, Options{KnownHosts: []string{s.KnownHosts}}, "there is no key for SSH", "ssh-add", "--add-ssh-key")

	lookup := func(name string) (string, bool) { return strings.TrimSpace(string(s.Key)), name == "KEY" }
	if _, err := sshclient.EnvKey("me:KEY", lookup); err != nil {
		t.Error(err)
	}
	for spec, want := range map[string]string{"KEY": "want NAME:VARIABLE", "me:NONE": "the variable NONE for the key " +
		"me"} {
		if _, err := sshclient.EnvKey(spec, lookup); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", spec, err)
		}
	}
	if _, err := sshclient.ParseKey("x", []byte("secret")); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("text that is no key: %v", err)
	}
	block, err := ssh.MarshalPrivateKeyWithPassphrase(s.Private, "", []byte("p"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sshclient.ParseKey("x", pem.EncodeToMemory(block)); err == nil || !strings.Contains(err.Error(), "ssh-add") {
		t.Errorf("an encrypted key: %v", err)
	}
}

// TestKnownHosts: an unknown host and a changed key are refused before the client authenticates, with the command.
func TestKnownHosts(t *testing.T) {
	s := gittest.NewSSH(t)
	r := gittest.New(t)
	r.Commit(map[string]string{"a.txt": "1"})
	url := s.URL(r.Bare())
	o := options(t, s)
	o.KnownHosts = []string{filepath.Join(s.Dir, "none")}
	refuses(t, url, o, "the host 127.0.0.1:"+s.Port+" is unknown", "ssh-ed25519 SHA256:",
		"ssh-keyscan -p "+s.Port+" 127.0.0.1 >> "+o.KnownHosts[0])
	s.NewHostKey()
	refuses(t, url, options(t, s), "THE KEY OF THE HOST 127.0.0.1:"+s.Port+" HAS CHANGED", "SHA256:",
		fmt.Sprintf("ssh-keygen -R '[127.0.0.1]:%s'", s.Port))
	// the commands of the errors work
	scan := exec.Command(testneeds.Program(t, "ssh-keyscan"), "-p", s.Port, "127.0.0.1")
	line, err := scan.Output()
	if err != nil {
		t.Fatal(err)
	}
	s.Write("known_hosts", string(line))
	mustFetch(t, url, options(t, s))
}

// TestFromEnv: child processes get neither the token nor the keys nor the agent.
func TestFromEnv(t *testing.T) {
	_, key, _ := gittest.NewKey(t)
	t.Setenv(EnvToken, "secret")
	t.Setenv("SSH_AUTH_SOCK", "/run/agent")
	t.Setenv("KEY_OF_ANN", string(key))
	o, err := FromEnv([]string{"ann:KEY_OF_ANN"})
	if err != nil || o.Token != "secret" || o.Agent != "/run/agent" || len(o.Keys) != 1 || o.Keys[0].Name != "ann" {
		t.Errorf("%+v %v", o, err)
	}
	for _, name := range []string{EnvToken, "SSH_AUTH_SOCK", "KEY_OF_ANN"} {
		if _, has := os.LookupEnv(name); has {
			t.Errorf("%s is still set", name)
		}
	}
}
