package container

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"millrace/stream"
)

// addNetwork makes an internal network for one container, and returns the network's name. A file in the data folder has
// the name, for the removal after a crash: the list of networks of Podman 4 cannot be read by the client.
func (e *Engine) addNetwork(ctx context.Context, model string) (string, error) {
	name := "millrace-" + rand.Text()
	if err := os.WriteFile(e.networkFile(name), nil, 0o600); err != nil {
		return "", err
	}
	_, err := e.client.NetworkCreate(ctx, name, client.NetworkCreateOptions{Driver: "bridge", Internal: true,
		Labels: map[string]string{labelOwner: e.id, labelModel: model}})
	if err != nil {
		return name, stream.Errorf(stream.Unavailable, "container.serve",
			"the container engine cannot make an internal network: remove unused networks (docker network prune, "+
				"podman network prune) if no addresses are left; Podman needs netavark or the CNI plugins: %w", err)
	}
	return name, nil
}

func (e *Engine) networkFile(name string) string { return filepath.Join(e.folder, "networks", name) }

// removeNetwork removes a network. A missing network is no error.
func (e *Engine) removeNetwork(ctx context.Context, name string) error {
	_, err := e.client.NetworkRemove(ctx, name, client.NetworkRemoveOptions{})
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	return os.Remove(e.networkFile(name))
}

// removeOrphanNetworks removes the networks of an earlier process, whose containers are removed already. A network that
// somebody else uses stays, and does not keep models from loading.
func (e *Engine) removeOrphanNetworks(ctx context.Context) error {
	found, err := os.ReadDir(filepath.Join(e.folder, "networks"))
	if err != nil {
		return err
	}
	for _, f := range found {
		if err := e.removeNetwork(ctx, f.Name()); err != nil {
			e.opts.Log.Warn("a network of an earlier process cannot be removed: the next start of the server tries "+
				"again", "network", f.Name(), "error", err)
			continue
		}
		e.opts.Log.Info("a network of an earlier process was removed", "network", f.Name())
	}
	return nil
}

// closeNetwork removes the network of a container that is removed already.
func (s *server) closeNetwork(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	for wait := 50 * time.Millisecond; ; wait *= 2 { // the engine may still disconnect the container
		err := s.engine.removeNetwork(ctx, s.network)
		if err == nil {
			return
		}
		if wait > time.Second || ctx.Err() != nil {
			s.log.Error("a network cannot be removed: the next start of the server tries again", "network", s.network,
				"model", s.name, "error", err)
			return
		}
		time.Sleep(wait)
	}
}
