// Package sshclient opens connections to hosts over SSH: for repositories, and for deploys.
//
// The package owns which keys of hosts are accepted, which keys and agents are offered, and the errors that say what to
// do. It must not know what runs on the host.
package sshclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// Options are the credentials of the user, and the known hosts. The zero value has no credentials.
type Options struct {
	Keys       []Key
	Agent      string   // socket of an SSH agent, such as the value of SSH_AUTH_SOCK; "" = none
	KnownHosts []string // files with keys of hosts; nil = KnownHostsFiles
}

// Dialer opens a connection. The zero net.Dialer has such a method.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Dial connects to a host, HOST:PORT, as a user; "" = the user of this process. The host's key must be known. The
// connection ends with ctx.
func Dial(ctx context.Context, dial Dialer, name, at string, o Options) (*ssh.Client, error) {
	if name == "" {
		u, err := user.Current()
		if err != nil {
			return nil, fmt.Errorf("write the user, as in USER@HOST: %w", err)
		}
		name = u.Username
	}
	files := o.KnownHosts
	if files == nil {
		files = KnownHostsFiles()
	}
	check, algorithms, err := hostKeys(at, files)
	if err != nil {
		return nil, err
	}
	auth, offered, end, err := o.identities()
	if err != nil {
		return nil, err
	}
	defer end()
	c, err := dial(ctx, "tcp", at)
	if err != nil {
		return nil, explainDial(err, at)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	cfg := &ssh.ClientConfig{User: name, Auth: auth, HostKeyCallback: check, HostKeyAlgorithms: algorithms}
	conn, channels, requests, err := ssh.NewClientConn(c, at, cfg)
	if err != nil {
		stop()
		_ = c.Close()
		return nil, explain(ctx, err, at, name, offered)
	}
	return ssh.NewClient(stopping{conn, stop}, channels, requests), nil
}

// stopping is a connection that no longer waits for the end of a context once the connection is closed.
type stopping struct {
	ssh.Conn
	stop func() bool
}

// Close implements ssh.Conn.
func (s stopping) Close() error {
	s.stop()
	return s.Conn.Close()
}

// hostKeys returns a check of the host's key, and the kinds of keys that are known of the host.
func hostKeys(at string, files []string) (ssh.HostKeyCallback, []string, error) {
	there, err := present(files)
	if err != nil {
		return nil, nil, err
	}
	db, err := knownhosts.NewDB(there...)
	if err != nil {
		return nil, nil, fmt.Errorf("known hosts: %w", err)
	}
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return nil, nil, err
	}
	into := "~/.ssh/known_hosts"
	if len(files) > 0 && (len(there) == 0 || there[0] != files[0] || !strings.HasSuffix(files[0],
		"/.ssh/known_hosts")) {
		into = files[0]
	}
	scan := "ssh-keyscan " + host
	if port != "22" {
		scan = fmt.Sprintf("ssh-keyscan -p %s %s", port, host)
	}
	if len(files) > 0 && !isFolder(filepath.Dir(files[0])) {
		scan = fmt.Sprintf("mkdir -p -m 700 %s && %s", filepath.Dir(files[0]), scan)
	}
	known := db.HostKeyCallback()
	return func(hostname string, remote net.Addr, key ssh.PublicKey) error {
		err := known(hostname, remote, key)
		shown := key.Type() + " " + ssh.FingerprintSHA256(key)
		switch {
		case knownhosts.IsHostKeyChanged(err):
			return hostError{fmt.Errorf("THE KEY OF THE HOST %s HAS CHANGED to %s: somebody may read the connection. "+
				"Ask the owner of the host. If the owner has changed the key: ssh-keygen -R '%s' -f %s && %s >> %s", at,
				shown,
				knownhosts.Normalize(at), into, scan, into)}
		case knownhosts.IsHostUnknown(err):
			return hostError{fmt.Errorf("the host %s is unknown. Its key is %s: compare the key with the one that the "+
				"owner of the host publishes, and then add the key: %s >> %s", at, shown, scan, into)}
		}
		return err
	}, db.HostKeyAlgorithms(at), nil
}

func isFolder(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.IsDir()
}

// hostError is a refused key of a host.
type hostError struct{ error }

// identities returns the ways to authenticate, with text about what is offered. end closes the agent.
func (o Options) identities() (methods []ssh.AuthMethod, offered string, end func(), err error) {
	end = func() {}
	var names []string
	var own []ssh.Signer
	for _, k := range o.Keys {
		own = append(own, k.signer)
		names = append(names, "the key "+k.Name)
	}
	var others func() ([]ssh.Signer, error)
	if o.Agent != "" {
		c, err := net.DialTimeout("unix", o.Agent, 10*time.Second)
		switch {
		case err == nil:
			end = func() { _ = c.Close() }
			others = agent.NewClient(c).Signers
			names = append(names, "the keys of the agent")
		case len(own) == 0:
			return nil, "", end, fmt.Errorf("the agent of SSH_AUTH_SOCK does not answer: %w", err)
		}
	}
	if len(names) == 0 {
		return nil, "", end, errors.New("there is no key for SSH: start an agent (eval $(ssh-agent); ssh-add), or " +
			"give --ssh-key FILE, or --add-ssh-key NAME:VARIABLE")
	}
	return []ssh.AuthMethod{ssh.PublicKeysCallback(func() ([]ssh.Signer, error) {
		all := own
		if others != nil {
			more, err := others()
			if err != nil && len(own) == 0 {
				return nil, fmt.Errorf("the agent of SSH_AUTH_SOCK: %w", err)
			}
			all = append(all[:len(all):len(all)], more...)
		}
		return all, nil
	})}, strings.Join(names, " and "), end, nil
}

// ErrNoServer means that no server of SSH answers at an address.
var ErrNoServer = errors.New("no SSH server answers")

// explainDial says what an address lacks that nobody answers at.
func explainDial(err error, at string) error {
	for _, gone := range []syscall.Errno{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
		syscall.ETIMEDOUT} {
		if errors.Is(err, gone) {
			return fmt.Errorf("%w at %s (%w)", ErrNoServer, at, gone)
		}
	}
	return err
}

// explain says what to do about a failure of the handshake.
func explain(ctx context.Context, err error, at, user, offered string) error {
	var host hostError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &host):
		return host
	case strings.Contains(err.Error(), "unable to authenticate"):
		return fmt.Errorf("the host accepts none of %s for the user %s: add the public key to the account there, or "+
			"give another key by --ssh-key or --add-ssh-key", offered, user)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("the SSH server at %s ended the connection: look at its log (%w)", at, err)
	}
	return err
}

// Said keeps the first bytes of a server's output, such as the standard error of a command.
type Said struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (s *Said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.Write(p[:min(len(p), 2000-min(2000, s.buf.Len()))])
	return len(p), nil
}

// Text returns the bytes as one line of printable characters.
func (s *Said) Text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimRight(Printable(s.buf.String()), ".")
}

// Printable returns text as one line of printable characters.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " "))
}
