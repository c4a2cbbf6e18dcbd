package process

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"millrace/internal/child"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

const (
	socketVariable = "MILLRACE_SOCKET" // the descriptor of the socket
	maxText        = 16 << 20          // bytes of the JSON text of a message
	messages       = 4                 // of a child in memory at the same time
	writeLimit     = 10 * time.Second  // for a message that waits for no other message
	lastWords      = 2 * time.Second   // for the end of a process after the end of the socket
)

// process is a running child with the connection to the child.
//
// The reader parses all messages, and passes each message to the waiting goroutine. A child computes batches in
// sequence, so the first batch in queue is the running batch.
type process struct {
	proc    *child.Process
	socket  *socket
	logs    *logs
	mem     *buf.Pool
	maxData int64 // bytes after the text of a message

	writing sync.Mutex // held while a message is written
	head    [8]byte
	parts   [][]byte

	mu        sync.Mutex
	queue     []*slot // batches sent and not answered, in their order
	why       error   // set when the child is given up; nil: the child may end by itself
	cause     string  // of the end, for counts
	suspectID uint64  // id of the batch that caused why; 0: the running batch
	health    *health
	counts    *workers.Processes
	counted   bool     // as running
	memory    int64    // resident, as counted
	leaving   bool     // the replacement of the child is requested
	begins    bool     // the child reports the begin of each batch
	asked     bool     // ask waits for a reply
	stopped   bool     // the child was told to end
	ordered   bool     // the child has ended as told
	release   []uint64 // streams whose state the child can drop
	oom       oom
	checked   chan *message

	routines sync.WaitGroup

	replies chan *message // of hello, setup
	free    chan *message // not in use
	lost    chan struct{} // closed when the child is given up: the reader waits for nobody
	once    sync.Once
	ended   chan struct{} // closed when the child has ended and all output of the child was read
	err     error         // the error of the child's end; set before ended is closed
}

// begin starts the program.
func begin(spec *Spec, env *workers.Env, logs *logs) (*process, error) {
	sock, theirs, err := newSocket()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	p := &process{
		socket: sock, logs: logs, mem: env.Memory, maxData: spec.Settings.MaxResult,
		replies: make(chan *message, 1), checked: make(chan *message, 1), free: make(chan *message, messages),
		lost: make(chan struct{}), ended: make(chan struct{}),
		health: newHealth(spec.Settings, stream.Now()), counts: env.Processes,
	}
	for range messages {
		p.free <- &message{}
	}
	keepDescriptors()
	if p.counts == nil {
		p.counts = &workers.Processes{}
	}
	program := child.Spec{
		Path: spec.Path, Args: spec.Args, Dir: spec.Dir, Env: spec.environment(),
		ExtraFiles: []*os.File{theirs},
		OnStderr:   func(line []byte) { logs.line(slog.LevelInfo, string(line), "from", "stderr") },
		Grace:      spec.Settings.Grace,
	}
	if spec.ServerProgram != nil {
		program.Sandbox, program.Limits = spec.ServerProgram.Sandbox, spec.ServerProgram.Limits
	} else {
		env.Programs.Apply(&program, spec.Files...)
	}
	p.proc, err = child.Start(context.Background(), program)
	if err != nil {
		_ = sock.file.Close()
		return nil, startError(spec, err)
	}
	if len(spec.cores) > 0 {
		if err := bind(p.proc.Pid(), spec.cores); err != nil {
			_ = sock.file.Close()
			_ = p.proc.Stop(0)
			return nil, err
		}
	}
	p.counted = true
	p.lookForOOM()
	p.counts.Started()
	p.routines.Go(func() { logs.copyLines(p.proc.Stdout, "stdout") }) // until kill closes the pipe
	p.routines.Go(p.read)
	return p, nil
}

// environment returns the variables of the program.
func (s *Spec) environment() []string {
	var env []string
	if s.ServerProgram == nil {
		env = os.Environ()
	}
	env = append(env, s.Env...)
	return append(env, socketVariable+"="+strconv.Itoa(3))
}

// startError explains why a program could not be started.
func startError(spec *Spec, err error) error {
	code := stream.NotFound
	var what string
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		code, what = stream.InvalidArgument, "is not a program that this system can start: a script needs #! and "+
			"its interpreter in its first line"
	case errors.Is(err, os.ErrPermission):
		code, what = stream.PermissionDenied, "is not executable: chmod +x"
	case errors.Is(err, os.ErrNotExist):
		what = "does not exist, or its interpreter does not"
	case errors.Is(err, exec.ErrNotFound):
		what = "was not found in PATH"
	default:
		code, what = stream.Internal, "could not be started"
	}
	return &stream.Error{Code: code, Field: "command", Msg: fmt.Sprintf("%s %s: %v", spec.Path, what, err), Err: err}
}

// giveUp kills a child because of err. Afterwards the reader waits for no goroutine.
func (p *process) giveUp(cause string, err error) { p.giveUpBy(0, cause, err) }

// giveUpBy is giveUp because of the answer to the batch id, which need not be the running batch.
func (p *process) giveUpBy(id uint64, cause string, err error) {
	p.mu.Lock()
	if p.why == nil {
		p.why, p.cause, p.suspectID = err, cause, id
	}
	p.mu.Unlock()
	p.once.Do(func() { close(p.lost) })
	_ = p.proc.Signal(syscall.SIGKILL)
}

// setCause sets the cause of the child's end, unless a cause is already set.
func (p *process) setCause(cause string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cause = cmp.Or(p.cause, cause)
}

// send writes a message. data are the bytes after the text; fd is a descriptor, or negative.
func (p *process) send(text []byte, data [][]byte, fd int, limit time.Duration) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	return p.sendLocked(text, data, fd, limit)
}

func (p *process) sendLocked(text []byte, data [][]byte, fd int, limit time.Duration) error {
	n := 0
	for _, d := range data {
		n += len(d)
	}
	binary.LittleEndian.PutUint32(p.head[:], uint32(len(text)))
	binary.LittleEndian.PutUint32(p.head[4:], uint32(n))
	p.parts = append(append(p.parts[:0], p.head[:], text), data...)
	defer clear(p.parts)
	return p.socket.write(p.parts, fd, limit)
}

// checkSizes returns an error for a too long message.
func checkSizes(text []byte, data [][]byte) error {
	n := 0
	for _, d := range data {
		n += len(d)
	}
	if len(text) > maxText || int64(n) > 1<<32-1 {
		return stream.Errorf(stream.TooLarge, "",
			"the batch needs a message of %d and %d bytes, and at most %d and %d are possible: send less at once",
			len(text), n, maxText, int64(1<<32-1))
	}
	return nil
}

// ask sends a message and waits for a reply of the kind want.
func (p *process) ask(ctx context.Context, text []byte, want kind) (*message, error) {
	p.mu.Lock()
	p.asked = true
	p.mu.Unlock()
	if err := p.send(text, nil, -1, writeLimit); err != nil && !errors.Is(err, syscall.EPIPE) &&
		!errors.Is(err, syscall.ECONNRESET) {
		return nil, err
	}
	var m *message
	select {
	case m = <-p.replies:
	default:
		select {
		case m = <-p.replies:
		case <-p.ended:
			select {
			case m = <-p.replies: // the last reply of the child
			default:
				return nil, p.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if m.kind == want {
		return m, nil
	}
	defer p.giveBack(m)
	if m.kind == isFailed {
		var f struct {
			Type      string `json:"type"`
			Message   string `json:"message"`
			Traceback string `json:"traceback"`
			Kind      string `json:"kind"`
			Field     string `json:"field"`
		}
		if err := decodeStrict(m.text, &f); err != nil {
			return nil, fmt.Errorf("in failed: %w", err)
		}
		return nil, &refusal{message: f.Message, traceback: f.Traceback, code: codeOf(f.Kind), kind: f.Kind,
			field: f.Field}
	}
	return nil, fmt.Errorf("the program answers with %s", m.name())
}

// refusal is a child's error when the child cannot serve.
type refusal struct {
	message, traceback string
	code               stream.Code
	kind               string // as named by the child
	field              string // the wrong setting or parameter
}

// RefusalKind returns the kind of the error with which a child refuses to serve. ok is false for other errors.
func RefusalKind(err error) (kind string, ok bool) {
	var said *refusal
	if errors.As(err, &said) {
		return said.kind, true
	}
	return "", false
}

func (r *refusal) Error() string {
	if r.traceback == "" {
		return r.message
	}
	return r.message + "\n" + r.traceback
}

func (p *process) giveBack(m *message) {
	m.reset()
	p.free <- m
}

// read reads messages until the socket ends, then waits for the end of the process.
func (p *process) read() {
	p.routines.Go(func() {
		<-p.proc.Done()
		// A process started by the child may keep the socket open forever.
		_ = p.socket.file.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	})
	err := p.readAll()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, os.ErrClosed), errors.Is(err, errGivenUp):
	default:
		p.giveUpBy(p.next(), "protocol", brokeProtocol(err))
	}
	p.finish()
}

// next returns the id of the next batch to be answered; 0 if no batch is in flight.
func (p *process) next() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return 0
	}
	return p.queue[0].id
}

// brokeProtocol returns the error of a batch whose child broke the protocol by err.
func brokeProtocol(err error) error {
	var e *stream.Error
	if errors.As(err, &e) && e.Field == "max_result" {
		return e
	}
	return stream.Errorf(stream.Internal, "", "the program broke the protocol: %w", err)
}

var errGivenUp = errors.New("the child was given up")

func (p *process) readAll() error {
	r := bufio.NewReaderSize(p.socket.file, 64<<10)
	var s scanner
	for {
		m, err := p.readMessage(r, &s)
		if err != nil {
			return err
		}
		if err := p.deliver(m); err != nil {
			return err
		}
	}
}

func (p *process) readMessage(r *bufio.Reader, s *scanner) (m *message, err error) {
	head, err := r.Peek(8)
	if err != nil {
		return nil, err
	}
	text, data := int(binary.LittleEndian.Uint32(head)), int(binary.LittleEndian.Uint32(head[4:]))
	_, _ = r.Discard(8)
	switch {
	case text < 2 || text > maxText:
		return nil, fmt.Errorf("a message begins with a length of %d bytes: want a JSON text of 2 to %d", text, maxText)
	case int64(data) > p.maxData:
		return nil, stream.Errorf(stream.TooLarge, "max_result",
			"a message has %d bytes after its text, and the setting allows %d: raise it, or return less", data,
			p.maxData)
	}
	select {
	case m = <-p.free:
	case <-p.lost:
		return nil, errGivenUp
	}
	if cap(m.text) < text || cap(m.text) > 1<<20 {
		m.text = make([]byte, 0, max(text, 1024))
	}
	m.text = m.text[:text]
	if _, err = io.ReadFull(r, m.text); err != nil {
		return nil, err
	}
	if data > 0 {
		if m.data, err = p.mem.Lease(data); err != nil {
			m.data, m.lost = nil, data
			_, err = r.Discard(data)
		} else {
			_, err = io.ReadFull(r, m.data.Bytes())
		}
		if err != nil {
			m.reset()
			return nil, err
		}
	}
	if err = m.parse(s); err != nil {
		m.reset()
		return nil, err
	}
	return m, nil
}

// deliver passes m to the waiting goroutine.
func (p *process) deliver(m *message) error {
	var to chan *message
	switch m.kind {
	case isLog:
		defer p.giveBack(m)
		return p.log(m)
	case isBegun:
		defer p.giveBack(m)
		return p.recordBatchBegin(m)
	case isChecked:
		to = p.checked
	case isPart, isResult, isDecode:
		p.mu.Lock()
		if len(p.queue) == 0 || p.queue[0].id != m.id {
			p.mu.Unlock()
			defer m.reset()
			return fmt.Errorf("%s has the id %d, which is not that of the batch that runs", m.name(), m.id)
		}
		s := p.queue[0]
		to = s.answers
		if m.kind == isResult {
			p.queue[0] = nil
			p.queue = append(p.queue[:0], p.queue[1:]...)
			if len(p.queue) > 0 {
				p.queue[0].began.Store(int64(stream.Now()))
			}
		}
		p.mu.Unlock()
	default:
		p.mu.Lock()
		asked := p.asked
		p.asked = false
		if asked && m.kind == isFailed {
			p.cause = cmp.Or(p.cause, "start") // also if the child then ends by itself
		}
		p.mu.Unlock()
		if asked {
			to = p.replies
		}
	}
	if m.kind != isPart && m.kind != isResult && m.kind != isDecode {
		select {
		case to <- m:
			return nil
		default:
			defer m.reset()
			return fmt.Errorf("%s was not asked for", m.name())
		}
	}
	select {
	case to <- m:
		return nil
	case <-p.lost:
		m.reset()
		return errGivenUp
	}
}

// recordBatchBegin notes that the child has begun the next batch in queue.
func (p *process) recordBatchBegin(m *message) error {
	var x struct {
		Type string `json:"type"`
		ID   uint64 `json:"id"`
	}
	if err := decodeStrict(m.text, &x); err != nil {
		return fmt.Errorf("in begun: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.begins:
		return errors.New("begun was sent, and model did not say begins")
	case len(p.queue) == 0 || p.queue[0].id != x.ID:
		return fmt.Errorf("begun has the id %d, which is not that of the batch that runs", x.ID)
	}
	p.queue[0].begunReceived = true
	return nil
}

// log logs a message of the program.
func (p *process) log(m *message) error {
	var l struct {
		Type    string `json:"type"`
		Level   string `json:"level"`
		Message string `json:"message"`
		Logger  string `json:"logger"`
		Request *int   `json:"request"`
		ID      *int   `json:"id"`
		Trace   string `json:"trace"`
	}
	if err := decodeStrict(m.text, &l); err != nil {
		return fmt.Errorf("in log: %w", err)
	}
	var args []any
	if l.Logger != "" {
		args = append(args, "logger", l.Logger)
	}
	if l.Trace != "" {
		args = append(args, "trace", l.Trace)
	}
	p.logs.line(levelOf(l.Level), l.Message, append(args, "pid", p.proc.Pid())...)
	return nil
}

// text returns the JSON of a rare message.
func text(of any) []byte {
	b, err := json.Marshal(of)
	if err != nil { // only for values unknown to JSON, such as NaN
		panic(err)
	}
	return b
}
