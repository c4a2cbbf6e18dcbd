package container

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"millrace/workers"
)

// running is a container from its creation to its removal.
type running struct {
	engine *Engine
	set    *parameters
	model  string // name
	log    *slog.Logger
	count  *workers.Processes

	id      string // "" = not created
	logTail tail
	streams io.Closer     // nil = not attached
	read    chan struct{} // closed at the end of the streams
	gone    chan struct{} // closed when the container has ended, or the engine does not answer any more
	status  int64         // after gone
	err     error         // after gone: of the engine
	unwatch func()        // nil = not started
}

// Times of the calls of the engine that end a container.
const (
	removeTimeout = 30 * time.Second
	killTimeout   = 10 * time.Second
	logWait       = time.Second // for the last lines of an ended container
)

// start creates and starts the container, and copies its streams to out and log. After an error, too, close removes
// the container.
func (c *running) start(ctx context.Context, options client.ContainerCreateOptions, out, log io.Writer) error {
	made, err := c.engine.client.ContainerCreate(ctx, options)
	if err != nil {
		if ctx.Err() != nil { // the engine may have made the container
			c.id = options.Name
		}
		return err
	}
	c.id = made.ID
	// The streams are open before the start, so that no line is lost. They end with the container.
	attached, err := c.engine.client.ContainerAttach(ctx, c.id, client.ContainerAttachOptions{Stream: true,
		Stdout: true, Stderr: true})
	if err != nil {
		return err
	}
	c.streams, c.read = closerFunc(attached.Close), make(chan struct{})
	go func() {
		defer close(c.read)
		_, _ = stdcopy.StdCopy(out, log, attached.Reader)
	}()
	if _, err := c.engine.client.ContainerStart(ctx, c.id, client.ContainerStartOptions{}); err != nil {
		return err
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.unwatch, c.gone = stop, make(chan struct{})
	c.count.ContainerStarted()
	go func() {
		defer close(c.gone)
		defer c.count.ContainerEnded()
		ended := c.engine.client.ContainerWait(watching, c.id, client.ContainerWaitOptions{
			Condition: container.WaitConditionNotRunning})
		select {
		case w := <-ended.Result:
			c.status = w.StatusCode
		case c.err = <-ended.Error:
		}
	}()
	return nil
}

type closerFunc func()

// Close implements io.Closer.
func (f closerFunc) Close() error { f(); return nil }

// awaitLog waits a moment for the last lines of an ended container.
func (c *running) awaitLog() {
	t := time.NewTimer(logWait)
	defer t.Stop()
	select {
	case <-c.read:
	case <-t.C:
	}
}

// terminate ends the started container: SIGTERM, and after the grace SIGKILL.
func (c *running) terminate(ctx context.Context, grace time.Duration) {
	kill := func(signal string, wait time.Duration) (gone bool) {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait+killTimeout)
		defer cancel()
		if _, err := c.engine.client.ContainerKill(within, c.id, client.ContainerKillOptions{
			Signal: signal}); err != nil {
			return false
		}
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-c.gone:
			return c.err == nil
		case <-timer.C:
			return false
		}
	}
	if grace <= 0 || !kill("SIGTERM", grace) {
		kill("SIGKILL", killTimeout)
	}
}

// close removes the container, with its processes.
func (c *running) close(ctx context.Context) {
	if c.unwatch != nil {
		c.unwatch()
		<-c.gone
	}
	if c.streams != nil {
		_ = c.streams.Close()
		<-c.read
	}
	if c.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	if err := c.engine.remove(ctx, c.id); err != nil {
		c.log.Error("a container cannot be removed: the next start of the server tries again", "container", c.id,
			"model", c.model, "error", err)
	}
}

// statusKilled is the status of a process that SIGKILL has ended.
const statusKilled = 128 + 9

// exitReason returns the text about a container that has ended by itself.
func (c *running) exitReason(ctx context.Context, status int64) string {
	reason := fmt.Sprintf("the container has ended with status %d", status)
	about, err := c.engine.client.ContainerInspect(ctx, c.id, client.ContainerInspectOptions{})
	switch {
	case err == nil && about.Container.State != nil && about.Container.State.OOMKilled:
		reason = fmt.Sprintf("the container needed more than %d bytes of memory (container.memory)", c.set.Memory)
	case status == statusKilled: // Podman 4 does not say why
		reason += fmt.Sprintf(": it was killed, perhaps because it needed more than %d bytes of memory "+
			"(container.memory)", c.set.Memory)
	}
	return reason
}
