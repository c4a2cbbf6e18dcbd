package deploy

import (
	"context"
	"fmt"
	"io"
)

// runner runs releases on a host.
type runner interface {
	check() error // whether the host has what it needs
	install(ctx context.Context, r *release, secrets []Secret) error
	start(r *release) error
	status(of ...*release) ([]status, error)
	healthy(r *release) error // nil if the server at the address of r is ready
	stop(r *release) error    // waits for the drain
	remove(r *release) error  // after a stop; also what is not there
	boot(r, before *release) error
	removeState() error // removes the application's own data
	logs(ctx context.Context, r *release, lines int, follow bool, out io.Writer) error
}

// status is the state of a release's process.
type status struct {
	running  bool
	restarts bool   // has ended with a failure, and was started again
	text     string // for messages
}

func (s *site) runner(with string) (runner, error) {
	switch with {
	case Podman:
		return &podman{s}, nil
	case Systemd:
		return &systemd{s}, nil
	}
	return nil, fmt.Errorf("%q is no way to run releases: want %s or %s", with, Podman, Systemd)
}
