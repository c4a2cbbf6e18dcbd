package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/user"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"millrace/internal/outbound"
)

// sshUpload is a run of git-upload-pack over SSH.
type sshUpload struct {
	conn   *ssh.Client
	run    *ssh.Session
	in     io.WriteCloser
	out    io.Reader
	said   said
	closed sync.Once
	stop   func() bool
}

// openSSH opens a repository over SSH. The host's key must be known.
func openSSH(ctx context.Context, s Source, o Options, n *outbound.Rule) (peer, error) {
	at := outbound.HostPort(s.url)
	name := s.url.User.Username()
	if name == "" {
		u, err := user.Current()
		if err != nil {
			return nil, fmt.Errorf("write the user, as in ssh://USER@HOST/PATH: %w", err)
		}
		name = u.Username
	}
	check, algorithms, err := hostKeys(at, o.KnownHosts)
	if err != nil {
		return nil, err
	}
	auth, offered, end, err := identities(o)
	if err != nil {
		return nil, err
	}
	defer end()
	c, err := n.Dial(ctx, "tcp", at)
	if err != nil {
		return nil, err
	}
	u := &sshUpload{stop: context.AfterFunc(ctx, func() { _ = c.Close() })}
	cfg := &ssh.ClientConfig{User: name, Auth: auth, HostKeyCallback: check, HostKeyAlgorithms: algorithms}
	conn, channels, requests, err := ssh.NewClientConn(c, at, cfg)
	if err != nil {
		u.stop()
		_ = c.Close()
		return nil, explainSSH(ctx, err, name, offered)
	}
	u.conn = ssh.NewClient(conn, channels, requests)
	if err := u.start(s.sshPath()); err != nil {
		_ = u.Close()
		return nil, err
	}
	return &session{upload: u, explain: u.explain}, nil
}

// sshPath returns the path as the server gets it.
func (s Source) sshPath() string {
	if s.path != "" { // USER@HOST:PATH
		return s.path
	}
	if strings.HasPrefix(s.url.Path, "/~") {
		return s.url.Path[1:]
	}
	return s.url.Path
}

func (u *sshUpload) start(path string) error {
	run, err := u.conn.NewSession()
	if err != nil {
		return err
	}
	u.run = run
	if u.in, err = run.StdinPipe(); err != nil {
		return err
	}
	if u.out, err = run.StdoutPipe(); err != nil {
		return err
	}
	run.Stderr = &u.said
	return run.Start("git-upload-pack '" + strings.ReplaceAll(path, "'", `'\''`) + "'")
}

// AdvertisedReferencesContext reads the references.
func (u *sshUpload) AdvertisedReferencesContext(ctx context.Context) (*packp.AdvRefs, error) {
	adv := packp.NewAdvRefs()
	if err := adv.Decode(io.LimitReader(u.out, maxReferences)); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if errors.Is(err, packp.ErrEmptyAdvRefs) {
			return nil, transport.ErrEmptyRemoteRepository
		}
		return nil, err
	}
	transport.FilterUnsupportedCapabilities(adv.Capabilities)
	if adv.IsEmpty() {
		return nil, transport.ErrEmptyRemoteRepository
	}
	return adv, nil
}

// UploadPack asks for a pack.
func (u *sshUpload) UploadPack(_ context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	var b bytes.Buffer
	if err := errors.Join(req.Validate(), req.UploadRequest.Encode(&b), req.UploadHaves.Encode(&b, true)); err != nil {
		return nil, err
	}
	if err := pktline.NewEncoder(&b).Encodef("done\n"); err != nil {
		return nil, err
	}
	if _, err := u.in.Write(b.Bytes()); err != nil {
		return nil, err
	}
	// io.EOF: the server has sent the pack and closed the channel already.
	if err := u.in.Close(); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	resp := packp.NewUploadPackResponse(req)
	return resp, resp.Decode(io.NopCloser(u.out))
}

// Close ends the connection.
func (u *sshUpload) Close() (err error) {
	u.closed.Do(func() {
		u.stop()
		err = u.conn.Close()
	})
	return err
}

// explain adds what the server said to an error, and the exit status of git-upload-pack.
func (u *sshUpload) explain(err error) error {
	// Both may arrive after the end of the standard output.
	timer := time.AfterFunc(5*time.Second, func() { _ = u.Close() })
	exit := u.run.Wait()
	timer.Stop()
	_ = u.Close()
	if text := u.said.text(); text != "" {
		return fmt.Errorf("the server said: %s. Compare the path, and ask whether this key may read the repository",
			text)
	}
	var status *ssh.ExitError
	if errors.As(exit, &status) {
		return fmt.Errorf("git-upload-pack on the server: %w", status)
	}
	return fmt.Errorf("the server ended the connection: %w", err)
}

// said keeps the first bytes that a server writes to its standard error.
type said struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.Write(p[:min(len(p), 2000-min(2000, s.buf.Len()))])
	return len(p), nil
}

// text returns the bytes as one line of printable characters.
func (s *said) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimRight(printable(s.buf.String()), ".")
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

// hostError is a refused key of a host.
type hostError struct{ error }

// identities returns the ways to authenticate, with text about what is offered. end closes the agent.
func identities(o Options) (methods []ssh.AuthMethod, offered string, end func(), err error) {
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

// explainSSH says what to do about a failure of the handshake.
func explainSSH(ctx context.Context, err error, user, offered string) error {
	var host hostError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &host):
		return host
	case strings.Contains(err.Error(), "unable to authenticate"):
		return fmt.Errorf("the host accepts none of %s for the user %s: add the public key to the account there, or "+
			"give another key by --ssh-key or --add-ssh-key", offered, user)
	}
	return err
}
