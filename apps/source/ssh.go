package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"golang.org/x/crypto/ssh"

	"millrace/internal/outbound"
	"millrace/internal/sshclient"
)

// sshUpload is a run of git-upload-pack over SSH.
type sshUpload struct {
	conn   *ssh.Client
	run    *ssh.Session
	in     io.WriteCloser
	out    io.Reader
	said   sshclient.Said
	closed sync.Once
}

// openSSH opens a repository over SSH. The host's key must be known.
func openSSH(ctx context.Context, s Source, o Options, n *outbound.Rule) (peer, error) {
	conn, err := sshclient.Dial(ctx, n.Dial, s.url.User.Username(), outbound.HostPort(s.url),
		sshclient.Options{Keys: o.Keys, Agent: o.Agent, KnownHosts: o.KnownHosts})
	if err != nil {
		return nil, err
	}
	u := &sshUpload{conn: conn}
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
	u.closed.Do(func() { err = u.conn.Close() })
	return err
}

// explain adds what the server said to an error, and the exit status of git-upload-pack.
func (u *sshUpload) explain(err error) error {
	// Both may arrive after the end of the standard output.
	timer := time.AfterFunc(5*time.Second, func() { _ = u.Close() })
	exit := u.run.Wait()
	timer.Stop()
	_ = u.Close()
	if text := u.said.Text(); text != "" {
		return fmt.Errorf("the server said: %s. Compare the path, and ask whether this key may read the repository",
			text)
	}
	var status *ssh.ExitError
	if errors.As(exit, &status) {
		return fmt.Errorf("git-upload-pack on the server: %w", status)
	}
	return fmt.Errorf("the server ended the connection: %w", err)
}
