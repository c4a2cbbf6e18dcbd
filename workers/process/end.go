package process

import (
	"cmp"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"millrace/internal/child"
	"millrace/stream"
)

// finish waits for the end of the process after the end of the socket, and sets err.
func (p *process) finish() {
	defer close(p.ended)
	p.once.Do(func() { close(p.lost) })
	t := time.NewTimer(lastWords)
	defer t.Stop()
	select {
	case <-p.proc.Done():
	case <-t.C:
		p.mu.Lock()
		stopped := p.stopped
		p.mu.Unlock()
		if !stopped { // otherwise stop or kill ends the process, after grace
			p.giveUp("protocol", brokeProtocol(errors.New("it has closed its connection and goes on")))
		}
		<-p.proc.Done()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	exit := p.proc.Wait()
	defer func() {
		p.counted = false
		p.counts.AddMemory(-p.memory)
		p.counts.Ended(p.cause)
	}()
	switch {
	case p.why != nil:
		p.err = p.why
	case p.stopped:
		p.cause, p.ordered = cmp.Or(p.cause, "stopped"), true
		p.err = stream.Errorf(stream.Unavailable, "", "the program was stopped")
	case p.cause == "start": // the child has reported the reason before
		_, p.err = explain(exit, p.oom.recent(stream.Now()))
	default: // for any cause of a replacement
		p.cause, p.err = explain(exit, p.oom.recent(stream.Now()))
	}
}

// explain describes the end of a process that was not given up. short means that the kernel has just killed a process
// for lack of memory.
func explain(exit error, short bool) (cause string, err error) {
	var e *child.ExitError
	if !errors.As(exit, &e) {
		return "exit", stream.Errorf(stream.Internal, "", "the program has ended with status 0")
	}
	said := ""
	if e.LastLines != "" {
		said = ": " + e.LastLines
	}
	sig, how := e.Signal, fmt.Sprintf("was ended by signal %d (%s)", int(e.Signal), e.Signal)
	if sig == 0 {
		how = fmt.Sprintf("has ended with status %d", e.Code)
		if e.Code > 128 { // a shell's status for a command ended by a signal
			sig = syscall.Signal(e.Code - 128)
		}
	}
	switch {
	case sig == syscall.SIGKILL && short:
		return "oom", stream.Errorf(stream.Internal, "", "the program was killed, probably by the kernel because "+
			"memory ran out (OOM): give it less at once (batching.max_size, instances), bound it by memory_limit, "+
			"or give the container or machine more memory%s", said)
	case sig == syscall.SIGKILL:
		return "killed", stream.Errorf(stream.Internal, "",
			"the program was killed by SIGKILL, which another process sent%s", said)
	case isExternalSignal(sig):
		return "killed", stream.Errorf(stream.Internal, "", "the program %s, because another process sent %s%s", how,
			unix.SignalName(sig), said)
	case e.Signal != 0:
		return "signal", stream.Errorf(stream.Internal, "", "the program %s%s", how, said)
	}
	ended := stream.Errorf(stream.Internal, "", "the program %s%s", how, said)
	ended.Err = e // for ResultCode
	return "exit", ended
}

// isExternalSignal reports whether a signal comes from other processes, not from the program's computation.
func isExternalSignal(s syscall.Signal) bool {
	switch s {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2:
		return true
	}
	return false
}

// stop ends the child: by close, SIGTERM and SIGKILL, each after grace, or after half of the time returned by left.
func (p *process) stop(grace time.Duration, left func() time.Duration) {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	select {
	case <-p.lost: // nobody reads the message
	default:
		step := min(grace, left()/2)
		_ = p.socket.file.SetWriteDeadline(time.Now().Add(step)) // also of another message
		if p.send([]byte(`{"type":"close"}`), nil, -1, max(step, time.Millisecond)) == nil {
			p.await(grace, left)
		}
	}
	p.kill(grace, left)
}

// await waits for the end of the process, at most for grace and for half of the time returned by left, which may
// shrink during the wait.
func (p *process) await(grace time.Duration, left func() time.Duration) {
	t := time.NewTimer(0)
	defer t.Stop()
	for by := stream.Now().Add(grace); ; {
		now := stream.Now()
		by = min(by, now.Add(left()/2))
		if by <= now {
			return
		}
		t.Reset(min(by.Sub(now), pollInterval))
		select {
		case <-p.proc.Done():
			return
		case <-t.C:
		}
	}
}

// kill ends the child by SIGTERM and then SIGKILL, like stop, and frees the resources of the connection. Without
// grace kill sends SIGKILL at once.
func (p *process) kill(grace time.Duration, left func() time.Duration) {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	if grace > 0 {
		_ = p.proc.Signal(syscall.SIGTERM) // an error means that the process has already ended
		p.await(grace, left)
	}
	p.once.Do(func() { close(p.lost) })
	_ = p.proc.Stop(0)
	p.routines.Wait()
	_ = p.socket.file.Close()
	p.logs.flush()
	for { // unread messages
		select {
		case m := <-p.replies:
			m.reset()
		case m := <-p.checked:
			m.reset()
		default:
			return
		}
	}
}
