package video

import (
	"context"
	"io"
	"net/netip"
	"os/exec"
	"path/filepath"

	"millrace/internal/child"
	"millrace/internal/confine"
)

// NewSandbox returns the sandbox of a program of FFmpeg that reads only from its descriptors.
func NewSandbox(program string) *child.Sandbox {
	s := &child.Sandbox{Read: confine.SystemFiles()}
	if path, err := exec.LookPath(program); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			// of a build in its own folder
			s.Read = append(s.Read, filepath.Join(filepath.Dir(filepath.Dir(path)), "lib"))
		}
	}
	return s
}

// sandbox returns the sandbox of ffmpeg or ffprobe for the source: access only to the folder of a file, and
// connections only to the proxy or the relay, if any. nil for a camera of this machine.
func (r *route) sandbox(program string) *child.Sandbox {
	s := NewSandbox(program)
	switch {
	case r.scheme == SchemeV4L2:
		return nil
	case r.scheme == SchemeFile:
		s.Read = append(s.Read, r.target)
		if dir := filepath.Dir(r.target); dir != "/" { // with the parts of a playlist
			s.Read = append(s.Read, dir)
		}
	case r.feed != nil:
	case r.listener != nil:
		s.Connect = []uint16{netip.MustParseAddrPort(r.listener.addr).Port()}
	case isNetwork(r.scheme):
		s.Network = true
		s.Read = append(s.Read, confine.ResolverFiles()...)
	}
	return s
}

// CheckSandbox returns an error when ffmpeg cannot be confined here, or does not start then.
func CheckSandbox(ctx context.Context) error {
	if err := child.SandboxError(); err != nil {
		return err
	}
	const program = "ffmpeg"
	p, err := child.Start(ctx, child.Spec{Path: program, Args: []string{"-hide_banner", "-version"},
		Env: Environment(), Sandbox: NewSandbox(program)})
	if err != nil {
		return err
	}
	defer func() { _ = p.Stop(0) }()
	_, _ = io.Copy(io.Discard, p.Stdout)
	return p.Wait()
}
