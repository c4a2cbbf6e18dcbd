package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"millrace/internal/scratch"
)

const (
	// DefaultStderrBytes is how much of standard error is kept when Spec.StderrBytes is 0.
	DefaultStderrBytes = 8 << 10
	// DefaultGrace is the time between SIGTERM and SIGKILL when Spec.Grace is 0.
	DefaultGrace = 2 * time.Second
	// MaxPipeSize is the largest pipe Spec.PipeSize may ask for: the kernel's limit for an ordinary user.
	MaxPipeSize = 1 << 20
	// drainAfterExit bounds the wait for standard error after the child has been reaped. The wait is only needed when
	// a grandchild left the process group and still holds the pipe.
	drainAfterExit = time.Second
)

// Spec describes the child. Only Path is required.
type Spec struct {
	// Path is the program: a path, or a name to look up in PATH.
	Path string
	// Args are the arguments after the program's name.
	Args []string
	// Env is the whole environment, as "KEY=value"; of duplicate names the last counts. nil inherits this process's
	// environment.
	Env []string
	// Dir is the working folder; "" is this process's.
	Dir string
	// StderrBytes is how much of the end of standard error is kept; 0 means DefaultStderrBytes.
	StderrBytes int
	// OnStderr, if set, is called with every line of standard error, without the end of line, by a goroutine of the
	// Process or by the caller of ReadStderr; calls do not overlap. OnStderr must not call ReadStderr. The slice is
	// only valid during the call. If the call blocks, the child blocks once the pipe is full. Lines longer than 4 KB
	// arrive in pieces.
	OnStderr func(line []byte)
	// PipeSize requests a larger pipe for standard output, in bytes, at most MaxPipeSize. The kernel may provide a
	// smaller pipe without an error. 0 is the kernel's default, usually 64 KB.
	PipeSize int
	// Stdin opens a pipe to the child's standard input, see Process.Stdin. Without Stdin and StdinFile, the child
	// reads from /dev/null.
	Stdin bool
	// StdinFile becomes the child's standard input. The caller keeps and closes its own descriptor.
	StdinFile *os.File
	// ExtraFiles become descriptors 3, 4, ... of the child. The caller keeps and closes its own descriptors.
	ExtraFiles []*os.File
	// Grace is the time between SIGTERM and SIGKILL when the context ends the child; 0 means DefaultGrace.
	Grace time.Duration
	// Limits bound the resources of the child (Linux only), from its first instruction on. Where the kernel refuses
	// ptrace, the limits apply shortly after the start.
	Limits Limits
	// Sandbox confines the child; nil: no confinement.
	Sandbox *Sandbox
	// Contained makes the child the leader of a session (Linux only). Where this process may make namespaces (root, but
	// not in most containers), the child sees only its descendants, and with the child end all of its descendants and
	// their System V IPC.
	Contained bool
	// Temp gives the child its own folder for temporary files, named by the variable TMPDIR. The folder is removed
	// after the child's end.
	Temp bool
}

// Limits are resource limits of a child; the child cannot raise them. The zero Limits are the limits of this process,
// except that no child makes core dumps.
type Limits struct {
	AddressSpace uint64 // bytes; 0 = unchanged. Memory mapped at the start counts.
	Data         uint64 // bytes of private writable memory of each process; 0 = unchanged
	Files        uint64 // descriptors, reduced to this process's hard limit; 0 = unchanged
	FileSize     uint64 // bytes of each file that is written; 0 = unchanged
	Tasks        uint64 // processes and threads of the user besides the present; 0 = unchanged. Not for root.
	NoWrites     bool   // to files; pipes are not files
	Nice         int    // nice value relative to this process, 0 to 19 (nice(2))
	// CPU is the total processor time of each process of the child, rounded up to seconds; 0 = unchanged. At the
	// limit the kernel sends SIGXCPU, and SIGKILL a second of processor time later. CPU is for jobs of limited
	// length.
	CPU time.Duration
	// Strict makes Start fail where the kernel refuses ptrace.
	Strict bool
}

// Usage is what a child uses together with its descendants.
type Usage struct {
	Tasks  int    // processes and threads
	Memory uint64 // bytes that are in no file, with those in swap
	Shared uint64 // the part of Memory that is not private
}

// Process is a running or ended child. Its methods may be called concurrently.
type Process struct {
	// Stdout is the read end of the child's standard output, with support for read deadlines. Stop closes Stdout, so
	// that a blocked Read returns os.ErrClosed.
	Stdout *os.File
	// Stdin is the write end of the child's standard input; nil unless Spec.Stdin was set. Stop closes Stdin.
	Stdin *os.File

	name   string
	grace  time.Duration
	space  uint64 // Limits.AddressSpace
	pid    int
	proc   *os.Process
	holder *os.Process     // of the namespace, nil = none
	temp   *scratch.Folder // nil = none
	stderr *tail
	writer *stdinWriter // of Stdin; made by the first Write
	done   chan struct{}
	err    error // set before done is closed
	left   int   // the same

	stopWatching func() bool // the context

	// mu is held while sending a signal and while reaping, so that no signal is sent to a pid after the kernel has
	// reused the pid.
	mu         sync.Mutex
	reaped     bool
	cpu        time.Duration // valid when reaped
	stopped    atomic.Bool
	closePipes sync.Once
}

var live atomic.Int64

// LiveChildren returns the number of children started and not yet reaped, for leak tests and metrics.
func LiveChildren() int { return int(live.Load()) }

// Start starts a child. The end of ctx stops the child like Stop(Spec.Grace). The caller must call Stop even after
// the child has ended by itself, because Stop closes Stdout.
//
// The error wraps exec.ErrNotFound or fs.ErrNotExist when the program does not exist.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("child: start %s: %w", spec.Path, err)
	}
	if spec.PipeSize < 0 || spec.PipeSize > MaxPipeSize {
		return nil, fmt.Errorf("child: start %s: PipeSize is %d; want 0 to %d bytes", spec.Path, spec.PipeSize,
			MaxPipeSize)
	}
	if spec.Stdin && spec.StdinFile != nil {
		return nil, fmt.Errorf("child: start %s: Stdin and StdinFile are both set; want one of them", spec.Path)
	}
	path, err := exec.LookPath(spec.Path)
	if err != nil {
		return nil, fmt.Errorf("child: start %s: %w", spec.Path, err)
	}
	if spec.Grace <= 0 {
		spec.Grace = DefaultGrace
	}
	if spec.StderrBytes <= 0 {
		spec.StderrBytes = DefaultStderrBytes
	}

	temp, err := spec.makeTemp()
	if err != nil {
		return nil, fmt.Errorf("child: start %s: %w", spec.Path, err)
	}
	pipes, err := openPipes(spec)
	if err != nil {
		removeTemp(temp)
		return nil, fmt.Errorf("child: start %s: %w", spec.Path, err)
	}
	attr := &os.ProcAttr{
		Dir: spec.Dir,
		// without replaced variables: programs differ in the duplicate they use
		Env:   (&exec.Cmd{Env: spec.Env}).Environ(),
		Files: append([]*os.File{pipes.childIn, pipes.childOut, pipes.childErr}, spec.ExtraFiles...),
		Sys:   sysProcAttr(),
	}
	conn, err := pipes.err.SyscallConn()
	if err != nil { // impossible for an open pipe
		panic(err)
	}
	p := &Process{
		Stdout: pipes.out, Stdin: pipes.in,
		name: spec.Path, grace: spec.Grace, space: spec.Limits.AddressSpace, temp: temp,
		stderr: newTail(conn, spec.StderrBytes, spec.OnStderr),
		done:   make(chan struct{}),
	}
	started, mark := make(chan error), newMark()
	onOwnThread(func() {
		err := p.start(mark, path, spec, attr)
		if err != nil {
			endHolder(p.holder)
			started <- err
			return
		}
		live.Add(1)
		// AfterFunc starts no goroutine until the context ends.
		p.stopWatching = context.AfterFunc(ctx, func() { p.terminate(p.grace) })
		started <- nil
		p.supervise(pipes.err)
	})
	err = <-started
	pipes.closeChildEnds()
	if err != nil {
		pipes.closeParentEnds()
		removeTemp(temp)
		return nil, fmt.Errorf("child: start %s: %w", spec.Path, withHint(err))
	}
	return p, nil
}

// withHint adds the limits that may be the reason of an error of a start.
func withHint(err error) error {
	if errors.Is(err, syscall.EAGAIN) {
		return fmt.Errorf("%w: the user, the service or the container has too many processes: end processes, or raise "+
			"ulimit -u, TasksMax or pids_limit", err)
	}
	return err
}

// start starts the child from a thread of onOwnThread.
func (p *Process) start(mark, path string, spec Spec, attr *os.ProcAttr) error {
	if err := markParent(); err != nil {
		return err
	}
	if spec.Contained {
		holder, err := contain(mark, attr.Sys)
		if err != nil {
			return fmt.Errorf("namespaces: %w", err)
		}
		p.holder = holder
	}
	if err := spec.Sandbox.confine(path); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	proc, resume, err := startStopped(mark, path, append([]string{spec.Path}, spec.Args...), attr, spec.Limits.Strict)
	if err != nil {
		return err
	}
	limited := make(chan error)
	// on another thread: a confined thread may not
	go func() { limited <- spec.Limits.set(proc.Pid, spec.Contained) }()
	if err = <-limited; err == nil {
		err = resume()
	}
	if err != nil {
		_ = proc.Kill()
		_, _ = proc.Wait()
		forget(proc.Pid)
		return err
	}
	p.pid, p.proc = proc.Pid, proc
	return nil
}

// supervise reaps the child and reads its standard error. Besides the reader of standard error and the caller of
// Start, supervise is the child's only long-lived goroutine.
func (p *Process) supervise(stderr *os.File) {
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.stderr.readAll()
	}()

	state, err := p.reap()
	forget(p.pid)

	p.stopWatching()
	removed := make(chan struct{})
	go func() { // on another thread: this thread is confined like the child
		defer close(removed)
		endHolder(p.holder)
		p.left = endOrphans()
		removeTemp(p.temp)
	}()
	// The deadline loses no output of the child: the output is already in the pipe.
	_ = stderr.SetReadDeadline(time.Now().Add(drainAfterExit))
	<-read
	<-removed
	_ = stderr.Close()

	p.err = exitError(p.name, state, err, p.stopped.Load(), p.stderr)
	live.Add(-1)
	close(p.done)
}

// Write writes all parts to Stdin, which must be open, and blocks while the pipe is full. On Linux one system call
// writes as many bytes as fit into the pipe. Calls must not overlap.
func (p *Process) Write(parts ...[]byte) (err error) {
	if p.writer == nil {
		if p.writer, err = newStdinWriter(p.Stdin); err != nil {
			return err
		}
	}
	return p.writer.write(parts)
}

// Pid returns the child's process id, equal to the id of its group.
func (p *Process) Pid() int { return p.pid }

// CPU returns the processor time used by the child so far; after its end, including the processes waited for by the
// child. Except on Linux, CPU returns 0 until the end.
func (p *Process) CPU() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return p.cpu
	}
	return cpuClock(p.pid)
}

// RunDelay returns the time for which the child's threads have waited for a processor, added up, and whether a thread
// runs or waits for a processor now: the kernel adds the time of a wait when the thread gets a processor. The results
// are 0 and false after the end of the child, and where the kernel does not say. RunDelay takes a few system calls for
// each thread.
func (p *Process) RunDelay() (sum time.Duration, runnable bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return 0, false
	}
	return runDelay(p.pid)
}

// ended records that the child was reaped. The caller holds mu.
func (p *Process) ended(state *os.ProcessState) {
	p.reaped = true
	if state != nil {
		p.cpu = state.UserTime() + state.SystemTime()
	}
}

// Done is closed when the child has been reaped and its standard error has been read to the end.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the child to end. The result is nil after exit status 0, else an *ExitError. Wait may be called any
// number of times, from any goroutine, or never.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Left returns the number of descendants of ended children, after Adopt, that could not be ended. Left waits for the
// child to end.
func (p *Process) Left() int {
	<-p.done
	return p.left
}

// Stderr returns the kept end of standard error so far.
func (p *Process) Stderr() string { return p.stderr.String() }

// ReadStderr reads the bytes now in standard error. Afterwards Spec.OnStderr has been called with all lines that the
// child wrote before the output already read by the caller. ReadStderr costs one system call, and does not wait for
// the child. Spec.OnStderr must not call ReadStderr.
func (p *Process) ReadStderr() { p.stderr.readNow() }

// Signal sends sig to the whole group. The error is os.ErrProcessDone after the child has been reaped.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return os.ErrProcessDone
	}
	return syscall.Kill(-p.pid, sig)
}

// Stop ends the child and releases its resources: Stop sends SIGTERM to the group, closes this process's ends of the
// pipes (which ends a child blocked in writing), sends SIGKILL after grace, and waits until the child has been
// reaped. With grace <= 0, Stop sends SIGKILL at once. The result is as for Wait: an *ExitError after a signal, which
// callers may ignore. Stop is idempotent, and a second, concurrent Stop may shorten the grace.
func (p *Process) Stop(grace time.Duration) error {
	p.signalStop(grace)
	p.closePipes.Do(func() {
		_ = p.Stdout.Close()
		if p.Stdin != nil {
			_ = p.Stdin.Close()
		}
	})
	return p.waitOrKill(grace)
}

// terminate is Stop without closing the pipes: when the context ends, a reader may still read from Stdout.
func (p *Process) terminate(grace time.Duration) {
	p.signalStop(grace)
	_ = p.waitOrKill(grace)
}

func (p *Process) signalStop(grace time.Duration) {
	select {
	case <-p.done:
		return
	default:
	}
	p.stopped.Store(true)
	if grace <= 0 {
		_ = p.Signal(syscall.SIGKILL)
		return
	}
	_ = p.Signal(syscall.SIGTERM)
}

func (p *Process) waitOrKill(grace time.Duration) error {
	if grace > 0 {
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-p.done:
			return p.err
		case <-t.C:
			_ = p.Signal(syscall.SIGKILL)
		}
	}
	<-p.done
	return p.err
}
