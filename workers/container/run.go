package container

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	units "github.com/docker/go-units"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"millrace/internal/ziptree"
	"millrace/stream"
)

// job is one run of an image.
type job struct {
	running
	image  image
	files  *modelFiles // nil = no /model
	run    *stream.FileRun
	folder *folder
}

// Times of a run.
const (
	drainGrace         = 500 * time.Millisecond // in place of the grace when the server shuts down
	outputPollInterval = 200 * time.Millisecond // of the size of /output
)

// maxOpenFiles and maxProcesses are the limits of open files of a process, and of processes of the user.
const maxOpenFiles, maxProcesses = 1024, 1024

// runFile runs the image with the files of r, and writes the result. The container and the working folder are removed
// in any case.
func (j *job) runFile(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, j.set.Time, stream.Errorf(stream.Timeout, "container.time",
		"the container has not ended within %v", j.set.Time))
	defer cancel()
	if j.folder, err = j.engine.makeFolder(j.run.ID, j.set); err != nil {
		return err
	}
	defer j.folder.remove()
	if err := j.folder.writeInput(ctx, j.run); err != nil {
		return err
	}
	if err := j.runContainer(ctx); err != nil {
		return err
	}
	return j.folder.writeResult(ctx, j.run)
}

// runContainer runs the container to its end, and removes the container.
func (j *job) runContainer(ctx context.Context) error {
	var to io.Writer = &j.logTail
	if j.run.Log != nil {
		to = io.MultiWriter(to, j.run.Log)
	}
	out := to
	if j.run.Progress != nil {
		out = io.MultiWriter(to, &progressLines{report: j.run.Progress})
	}
	defer j.close(ctx)
	if err := j.start(ctx, j.options(), out, to); err != nil {
		return j.engineError(ctx, err)
	}
	status, err := j.await(ctx)
	if err == nil && status != 0 {
		j.awaitLog()
		return stream.Errorf(stream.Internal, "", "%s", j.logTail.explain(j.exitReason(ctx, status)))
	}
	if err == nil {
		j.awaitLog()
	}
	return err
}

// engineError returns the error of a call of the engine, or the reason why ctx has ended.
func (j *job) engineError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return unavailable(err)
}

// await waits for the end of the container, and ends the container when ctx ends or /output is full.
func (j *job) await(ctx context.Context) (status int64, err error) {
	output, err := os.OpenRoot(j.folder.output())
	if err != nil {
		return 0, err
	}
	defer func() { _ = output.Close() }()
	look := time.NewTimer(outputPollInterval)
	defer look.Stop()
	for {
		select {
		case <-j.gone:
			if j.err != nil {
				return 0, j.engineError(ctx, j.err)
			}
			return j.status, j.checkOutputSize(output)
		case <-ctx.Done():
			cause, grace := context.Cause(ctx), *j.set.Grace
			if stream.CodeOf(cause) == stream.Draining {
				grace = min(grace, drainGrace)
			}
			j.terminate(ctx, grace)
			return 0, stream.Errorf(stream.CodeOf(cause), "", "%s", j.logTail.explain(cause.Error()))
		case <-look.C:
			begun := time.Now()
			if err := j.checkOutputSize(output); err != nil {
				return 0, err // the removal of the container kills its processes
			}
			look.Reset(max(outputPollInterval, 10*time.Since(begun))) // at most a tenth of a processor
		}
	}
}

// checkOutputSize returns an error when /output has more bytes or files than allowed.
func (j *job) checkOutputSize(output *os.Root) error {
	bytes, files, err := ziptree.Size(output, ziptree.Limits{Bytes: j.set.Output, Files: j.set.Files})
	switch {
	case err != nil:
		return stream.Errorf(stream.Internal, "", "the size of /output cannot be read: %w", err)
	case bytes > j.set.Output:
		return stream.Errorf(stream.TooLarge, "container.output", "the container has written more than %d bytes to "+
			"/output", j.set.Output)
	case files > j.set.Files:
		return stream.Errorf(stream.TooLarge, "container.files", "the container has made more than %d files in "+
			"/output", j.set.Files)
	}
	return nil
}

// options returns the container to create. Nothing in the options is from a client, except the id of the run.
func (j *job) options() client.ContainerCreateOptions {
	o := j.confined(j.image, j.files,
		mount.Mount{Type: mount.TypeBind, Source: j.folder.input(), Target: "/input", ReadOnly: true},
		mount.Mount{Type: mount.TypeBind, Source: j.folder.output(), Target: "/output"})
	o.Name = "millrace-" + j.run.ID
	o.Config.NetworkDisabled, o.HostConfig.NetworkMode = true, "none"
	o.Config.Labels[labelRun] = j.run.ID
	o.HostConfig.Ulimits = append(o.HostConfig.Ulimits, fileSizeLimit(j.set.Output))
	return o
}

func fileSizeLimit(n int64) *units.Ulimit { return &units.Ulimit{Name: "fsize", Soft: n, Hard: n} }

// confined returns a container with the limits of the model, without name, network and limit of the size of files.
func (c *running) confined(of image, files *modelFiles, mounts ...mount.Mount) client.ContainerCreateOptions {
	p, e := c.set, c.engine
	if files != nil {
		mounts = append(mounts, mount.Mount{Type: mount.TypeBind, Source: files.folder, Target: "/model",
			ReadOnly: true})
	}
	small := fmt.Sprintf("rw,nosuid,nodev,size=%d,mode=1777", p.Tmp) // Podman takes the mode of the image's folder
	tmpfs := map[string]string{"/tmp": small}
	for _, folder := range of.volumes { // a volume would have no limit
		if !slices.ContainsFunc(mounts, func(m mount.Mount) bool { return m.Target == folder }) {
			tmpfs[folder] = small
		}
	}
	var health *container.HealthConfig
	if of.health {
		health = &container.HealthConfig{Test: []string{"NONE"}}
	}
	return client.ContainerCreateOptions{
		Config: &container.Config{
			Image: of.id, User: fmt.Sprintf("%d:%d", e.uid, e.gid), Healthcheck: health,
			Labels: map[string]string{labelOwner: e.id, labelModel: c.model},
		},
		HostConfig: &container.HostConfig{
			IpcMode: "private", ReadonlyRootfs: true, Mounts: mounts, Tmpfs: tmpfs,
			CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
			LogConfig: container.LogConfig{Type: "none"}, // the streams are attached
			Resources: container.Resources{
				Memory: p.Memory, MemorySwap: p.Memory, NanoCPUs: int64(p.CPUs * 1e9), PidsLimit: &p.PIDs,
				Ulimits: []*units.Ulimit{
					{Name: "nofile", Soft: maxOpenFiles, Hard: maxOpenFiles},
					{Name: "nproc", Soft: maxProcesses, Hard: maxProcesses},
					{Name: "core"},
				},
				DeviceRequests: deviceRequests(p.GPUs),
			},
		},
	}
}

// deviceRequests returns the request for GPUs.
func deviceRequests(text string) []container.DeviceRequest {
	if text == "" {
		return nil
	}
	r := container.DeviceRequest{Capabilities: [][]string{{"gpu"}}}
	if n, err := strconv.Atoi(text); err == nil {
		r.Count = n
	} else if text == "all" {
		r.Count = -1
	} else {
		r.DeviceIDs = strings.Split(text, ",")
	}
	return []container.DeviceRequest{r}
}
