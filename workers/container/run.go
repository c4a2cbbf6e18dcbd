package container

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	units "github.com/docker/go-units"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"millrace/internal/ziptree"
	"millrace/stream"
)

// job is one run of an image.
type job struct {
	engine *Engine
	set    *parameters
	image  image
	model  string      // name
	files  *modelFiles // nil = no /model
	run    *stream.FileRun
	folder *folder
	log    *slog.Logger

	id      string // of the container
	logTail tail
}

// Times of the calls of the engine that end a run, and the time between two looks at the size of /output.
const (
	removeTimeout      = 30 * time.Second
	killTimeout        = 10 * time.Second
	drainGrace         = 500 * time.Millisecond // in place of the grace when the server shuts down
	outputPollInterval = 200 * time.Millisecond
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
	c := j.engine.client
	made, err := c.ContainerCreate(ctx, j.options())
	if err != nil {
		return j.engineError(ctx, err)
	}
	j.id = made.ID
	defer j.removeContainer(ctx)
	// The streams are open before the start, so that no line is lost. They end with the container.
	attached, err := c.ContainerAttach(ctx, j.id, client.ContainerAttachOptions{Stream: true, Stdout: true,
		Stderr: true})
	if err != nil {
		return j.engineError(ctx, err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		var to io.Writer = &j.logTail
		if j.run.Log != nil {
			to = io.MultiWriter(to, j.run.Log)
		}
		out := to
		if j.run.Progress != nil {
			out = io.MultiWriter(to, &progressLines{report: j.run.Progress})
		}
		_, _ = stdcopy.StdCopy(out, to, attached.Reader)
	}()
	defer func() { attached.Close(); <-read }()
	waiting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if _, err := c.ContainerStart(ctx, j.id, client.ContainerStartOptions{}); err != nil {
		return j.engineError(ctx, err)
	}
	ended := c.ContainerWait(waiting, j.id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	status, err := j.await(ctx, ended)
	if err == nil {
		select { // the last lines
		case <-read:
		case <-time.After(time.Second):
		}
		return j.exitError(ctx, status)
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
func (j *job) await(ctx context.Context, ended client.ContainerWaitResult) (status int64, err error) {
	output, err := os.OpenRoot(j.folder.output())
	if err != nil {
		return 0, err
	}
	defer func() { _ = output.Close() }()
	look := time.NewTimer(outputPollInterval)
	defer look.Stop()
	for {
		select {
		case w := <-ended.Result:
			return w.StatusCode, j.checkOutputSize(output)
		case err := <-ended.Error:
			return 0, j.engineError(ctx, err)
		case <-ctx.Done():
			j.terminate(ctx, ended)
			cause := context.Cause(ctx)
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

// terminate ends the container: SIGTERM, and after the grace SIGKILL.
func (j *job) terminate(ctx context.Context, ended client.ContainerWaitResult) {
	grace := *j.set.Grace
	if stream.CodeOf(context.Cause(ctx)) == stream.Draining {
		grace = min(grace, drainGrace)
	}
	kill := func(signal string, wait time.Duration) (gone bool) {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait+killTimeout)
		defer cancel()
		_, err := j.engine.client.ContainerKill(within, j.id, client.ContainerKillOptions{Signal: signal})
		if err != nil {
			return false
		}
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-ended.Result:
			return true
		case <-ended.Error:
			return false
		case <-timer.C:
			return false
		}
	}
	if !kill("SIGTERM", grace) {
		kill("SIGKILL", killTimeout)
	}
}

// removeContainer removes the container, with its processes.
func (j *job) removeContainer(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	if err := j.engine.remove(ctx, j.id); err != nil {
		j.log.Error("a container cannot be removed: the next start of the server tries again", "container", j.id,
			"model", j.model, "error", err)
	}
}

// statusKilled is the status of a process that SIGKILL has ended.
const statusKilled = 128 + 9

// exitError returns the error of a container that has ended by itself.
func (j *job) exitError(ctx context.Context, status int64) error {
	if status == 0 {
		return nil
	}
	reason := fmt.Sprintf("the container has ended with status %d", status)
	about, err := j.engine.client.ContainerInspect(ctx, j.id, client.ContainerInspectOptions{})
	switch {
	case err == nil && about.Container.State != nil && about.Container.State.OOMKilled:
		reason = fmt.Sprintf("the container needed more than %d bytes of memory (container.memory)", j.set.Memory)
	case status == statusKilled: // Podman 4 does not say why
		reason += fmt.Sprintf(": it was killed, perhaps because it needed more than %d bytes of memory "+
			"(container.memory)", j.set.Memory)
	}
	return stream.Errorf(stream.Internal, "", "%s", j.logTail.explain(reason))
}

// options returns the container to create. Nothing in the options is from a client, except the id of the run.
func (j *job) options() client.ContainerCreateOptions {
	p, e := j.set, j.engine
	mounts := []mount.Mount{
		{Type: mount.TypeBind, Source: j.folder.input(), Target: "/input", ReadOnly: true},
		{Type: mount.TypeBind, Source: j.folder.output(), Target: "/output"},
	}
	if j.files != nil {
		mounts = append(mounts, mount.Mount{Type: mount.TypeBind, Source: j.files.folder, Target: "/model",
			ReadOnly: true})
	}
	small := fmt.Sprintf("rw,nosuid,nodev,size=%d,mode=1777", p.Tmp) // Podman takes the mode of the image's folder
	tmpfs := map[string]string{"/tmp": small}
	for _, folder := range j.image.volumes { // a volume would have no limit
		if folder != "/input" && folder != "/output" && folder != "/model" {
			tmpfs[folder] = small
		}
	}
	var health *container.HealthConfig
	if j.image.health {
		health = &container.HealthConfig{Test: []string{"NONE"}}
	}
	return client.ContainerCreateOptions{
		Name: "millrace-" + j.run.ID,
		Config: &container.Config{
			Image: j.image.id, User: fmt.Sprintf("%d:%d", e.uid, e.gid), NetworkDisabled: true,
			Healthcheck: health,
			Labels:      map[string]string{labelOwner: e.id, labelRun: j.run.ID, labelModel: j.model},
		},
		HostConfig: &container.HostConfig{
			NetworkMode: "none", IpcMode: "private", ReadonlyRootfs: true, Mounts: mounts, Tmpfs: tmpfs,
			CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
			LogConfig: container.LogConfig{Type: "none"}, // the streams are attached
			Resources: container.Resources{
				Memory: p.Memory, MemorySwap: p.Memory, NanoCPUs: int64(p.CPUs * 1e9), PidsLimit: &p.PIDs,
				Ulimits: []*units.Ulimit{
					{Name: "nofile", Soft: maxOpenFiles, Hard: maxOpenFiles},
					{Name: "nproc", Soft: maxProcesses, Hard: maxProcesses},
					{Name: "fsize", Soft: p.Output, Hard: p.Output}, {Name: "core"},
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
