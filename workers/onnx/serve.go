//go:build cgo

package onnx

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
)

// isolated is the process of one instance of a model with isolate: true, and speaks the protocol of docs/process.md.
type isolated struct {
	conn     *net.UnixConn
	segments map[int][]byte
	worker   *worker
	model    *stream.Model
	of       order
	name     string
	padded   [][]byte // inputs of a fixed batch with missing rows
}

// ServeIsolated runs a model in this process for the parent server, until the server ends the process.
func ServeIsolated() error {
	fd, err := strconv.Atoi(os.Getenv("MILLRACE_SOCKET"))
	if err != nil {
		return errors.New("the server starts this command itself, for models with isolate: true")
	}
	file := os.NewFile(uintptr(fd), "server")
	conn, err := net.FileConn(file)
	_ = file.Close()
	if err != nil {
		return fmt.Errorf("the connection to the server: %w", err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return errors.New("the connection to the server is not a unix socket")
	}
	p := &isolated{conn: unixConn, segments: map[int][]byte{}}
	defer p.stop()
	for {
		switch err := p.next(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func (p *isolated) stop() {
	if p.worker != nil {
		p.worker.Release()
		p.worker.Deallocate()
		p.worker.Destroy()
	}
	_ = p.conn.Close()
}

// incoming is a message of the server.
type incoming struct {
	Type     string                `json:"type"`
	ID       uint64                `json:"id"`
	Name     string                `json:"name"`
	MaxBatch int                   `json:"max_batch"`
	Options  struct{ ONNX string } `json:"options"`
	Size     int                   `json:"size"`
	Writable bool                  `json:"writable"`
	Results  *dataOffset           `json:"results"`
	Inputs   []described           `json:"inputs"`
	Requests []json.RawMessage     `json:"requests"`
	fd       int                   // received with the message; -1 = none
	data     []byte                // after the text
}

// dataOffset is a place of data.
type dataOffset struct {
	Segment *int `json:"segment,omitempty"`
	Offset  int  `json:"offset,omitempty"`
	At      *int `json:"at,omitempty"`
	Size    int  `json:"size"`
}

// described is a tensor of a message.
type described struct {
	Name     string          `json:"name"`
	Datatype stream.Datatype `json:"datatype"`
	Shape    []int           `json:"shape"`
	dataOffset
}

func (p *isolated) next() error {
	m, err := p.read()
	if err != nil {
		return err
	}
	switch m.Type {
	case "hello":
		return p.hello(m)
	case "setup":
		return p.setup()
	case "segment":
		return p.segment(m)
	case "drop_segment":
		if mem, ok := p.segments[int(m.ID)]; ok {
			p.worker.Release() // bindings to the old memory
			_ = unix.Munmap(mem)
			delete(p.segments, int(m.ID))
		}
	case "batch":
		return p.batch(m)
	case "check":
		return p.send(map[string]any{"type": "checked", "ok": true}, nil)
	case "close":
		return io.EOF
	}
	return nil
}

// read reads one message, and the descriptor sent with the message.
func (p *isolated) read() (*incoming, error) {
	var head [8]byte
	oob := make([]byte, unix.CmsgSpace(4))
	m := &incoming{fd: -1}
	for n := 0; n < len(head); {
		got, rights, _, _, err := p.conn.ReadMsgUnix(head[n:], oob)
		switch {
		case err != nil:
			return nil, err
		case got == 0:
			return nil, io.EOF
		}
		n += got
		if rights > 0 {
			if m.fd, err = descriptor(oob[:rights]); err != nil {
				return nil, err
			}
		}
	}
	text := make([]byte, binary.LittleEndian.Uint32(head[:]))
	m.data = make([]byte, binary.LittleEndian.Uint32(head[4:]))
	for _, into := range [][]byte{text, m.data} {
		if _, err := io.ReadFull(p.conn, into); err != nil {
			return nil, err
		}
	}
	return m, json.Unmarshal(text, m)
}

func descriptor(oob []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return -1, fmt.Errorf("a descriptor from the server: %w", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, fmt.Errorf("a descriptor from the server: %w", err)
	}
	return fds[0], nil
}

func (p *isolated) send(message any, data []byte) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	head = binary.LittleEndian.AppendUint32(head, uint32(len(data)))
	parts := net.Buffers{append(head, text...), data}
	_, err = parts.WriteTo(p.conn)
	return err
}

// refuse answers that the model cannot be served.
func (p *isolated) refuse(err error) error {
	code, field, text := partsOf(err)
	return p.send(map[string]any{"type": "failed", "message": text, "kind": code, "field": field}, nil)
}

// partsOf returns the code, the field and the text of an error.
func partsOf(err error) (code stream.Code, field, text string) {
	var e *stream.Error
	if errors.As(err, &e) {
		return e.Code, e.Field, e.Msg
	}
	return stream.CodeOf(err), "", err.Error()
}

// hello loads the model and describes it.
func (p *isolated) hello(m *incoming) error {
	if err := json.Unmarshal([]byte(m.Options.ONNX), &p.of); err != nil {
		return p.refuse(stream.Errorf(stream.Unavailable, "onnx.program",
			"is of another release than the server: name the millrace program of the same release (%w)", err))
	}
	SetLibrary(p.of.Library)
	SetMemory(p.of.Memory)
	p.name, p.worker = m.Name, &worker{}
	set := &settings{Session: p.of.Session, Warmup: &p.of.Warmup, BatchAxis: &p.of.BatchAxis}
	model, err := p.worker.Init(context.Background(), &workers.Env{
		Name: m.Name, Source: p.of.Source, Digest: p.of.Digest, Settings: set, MaxBatch: m.MaxBatch, Image: p.of.Image,
		Window: p.of.Window, Declared: p.of.Declared,
	})
	if err == nil && p.worker.text {
		err = stream.Errorf(stream.Unsupported, "isolate", "is true, and model %s takes strings, which child "+
			"processes do not get yet: set isolate: false, or serve it from a server of its own, with a model of "+
			"kind remote here", m.Name)
	}
	if err != nil {
		p.worker = nil // start has undone its steps, or the process ends
		return p.refuse(err)
	}
	p.model = model
	a := about{Axis: model.Axis, MaxBatch: model.MaxBatch, Metadata: model.Metadata, Left: p.worker.session.others}
	for _, out := range model.Outputs {
		if out.Unbatched {
			a.Unbatched = append(a.Unbatched, out.Name)
		}
	}
	return p.send(map[string]any{
		"type": "model", "batch": true, "max_batch": 1, "begins": true, "inputs": describedOf(model.Inputs),
		"outputs": describedOf(model.Outputs), "options": a,
	}, nil)
}

func describedOf(specs []stream.TensorSpec) []map[string]any {
	out := make([]map[string]any, len(specs))
	for i, s := range specs {
		out[i] = map[string]any{"name": s.Name, "datatype": s.Datatype, "shape": s.Shape}
	}
	return out
}

// setup makes the model ready to run.
func (p *isolated) setup() error {
	err := p.worker.Allocate(context.Background())
	if err == nil {
		err = p.worker.Acquire(context.Background())
	}
	if err != nil {
		return p.refuse(err)
	}
	return p.send(map[string]any{"type": "ready"}, nil)
}

// segment maps shared memory.
func (p *isolated) segment(m *incoming) error {
	if m.fd < 0 {
		return errors.New("a segment came without its descriptor")
	}
	defer func() { _ = unix.Close(m.fd) }()
	protection := unix.PROT_READ
	if m.Writable {
		protection |= unix.PROT_WRITE
	}
	mem, err := unix.Mmap(m.fd, 0, m.Size, protection, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %d bytes of shared memory: %w", m.Size, err)
	}
	p.segments[int(m.ID)] = mem
	return nil
}

// bytesAt returns the data of a place.
func (p *isolated) bytesAt(place dataOffset, data []byte) ([]byte, error) {
	from := place.Offset
	if place.Segment != nil {
		data = p.segments[*place.Segment]
	} else if place.At != nil {
		from = *place.At
	}
	if from < 0 || place.Size < 0 || from > len(data) || place.Size > len(data)-from {
		return nil, fmt.Errorf("a place of %d bytes at %d is not in the %d bytes there", place.Size, from, len(data))
	}
	return data[from:][:place.Size:place.Size], nil
}

// begunBytes are the bytes in front of the memory for results, reserved for the id of the batch.
const begunBytes = 64

func (p *isolated) batch(m *incoming) error {
	var room []byte
	if m.Results != nil {
		var err error
		if room, err = p.bytesAt(*m.Results, nil); err != nil {
			return err
		}
	}
	if len(room) >= begunBytes {
		binary.LittleEndian.PutUint64(room, m.ID)
	} else if err := p.send(map[string]any{"type": "begun", "id": m.ID}, nil); err != nil {
		return err
	}
	outputs, rows, err := p.run(m)
	if err != nil {
		return p.failed(m, err)
	}
	return p.answer(m, outputs, rows, room)
}

// run computes the outputs of a batch. rows is the number of input rows.
func (p *isolated) run(m *incoming) (outputs []stream.Tensor, rows int, err error) {
	inputs := make([]stream.Tensor, len(m.Inputs))
	for i, in := range m.Inputs {
		inputs[i] = stream.Tensor{Name: in.Name, Datatype: in.Datatype, Shape: in.Shape}
		if inputs[i].Data, err = p.bytesAt(in.dataOffset, m.data); err != nil {
			return nil, 0, err
		}
		if err = inputs[i].CheckSize("inputs."); err != nil || len(in.Shape) == 0 {
			return nil, 0, stream.Errorf(stream.Internal, "", "the server sent input %s with the shape %v: %w",
				in.Name, in.Shape, err)
		}
		rows = in.Shape[0]
	}
	computed := rows
	if p.worker.axis != free && rows < p.worker.max {
		computed = p.worker.max
		p.pad(inputs, rows)
	}
	stop := p.interruptAfter(p.of.Limit)
	outputs, err = p.worker.compute(context.Background(), inputs, computed)
	if late := stop(); late && err != nil {
		err = stream.Errorf(stream.Timeout, "limits.run", "model %s did not answer within %v: the run was ended",
			p.name, p.of.Limit)
	}
	return outputs, rows, err
}

// interruptAfter interrupts the following run after d, 0 = never. stop is called after the run, and reports whether
// the run was interrupted.
func (p *isolated) interruptAfter(d time.Duration) (stop func() (late bool)) {
	if d <= 0 {
		return func() bool { return false }
	}
	done := make(chan struct{})
	t := time.AfterFunc(d, func() {
		defer close(done)
		p.worker.Interrupt()
	})
	return func() bool {
		if t.Stop() {
			return false
		}
		<-done // otherwise the next run would be ended
		p.worker.ClearInterrupt()
		return true
	}
}

// pad fills the inputs of a fixed batch up with the missing rows.
func (p *isolated) pad(inputs []stream.Tensor, rows int) {
	if p.padded == nil {
		p.padded = make([][]byte, len(inputs))
	}
	for i := range inputs {
		t := &inputs[i]
		n := len(t.Data) / rows * p.worker.max
		if len(p.padded[i]) < n {
			p.padded[i] = make([]byte, n)
		}
		clear(p.padded[i][copy(p.padded[i], t.Data):n])
		t.Data, t.Shape = p.padded[i][:n], slices.Concat([]int{p.worker.max}, t.Shape[1:])
	}
}

// failed answers all requests of a batch with an error.
func (p *isolated) failed(m *incoming, err error) error {
	code, field, text := partsOf(err)
	one := map[string]any{"error": map[string]any{"code": code, "field": field, "message": text}}
	return p.send(map[string]any{"type": "result", "id": m.ID, "requests": slices.Repeat([]map[string]any{one},
		len(m.Requests))}, nil)
}

// answer sends the first rows of the outputs: in room, or after the text without room.
func (p *isolated) answer(m *incoming, outputs []stream.Tensor, rows int, room []byte) error {
	var after []byte
	list := make([]described, len(outputs))
	free := begunBytes
	for i, t := range outputs {
		if t.Shape[0] > rows {
			t.Data, t.Shape = batching.RowsOf(&t, 0, rows), slices.Concat([]int{rows}, t.Shape[1:])
		}
		out := described{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape, dataOffset: dataOffset{Size: len(t.Data)}}
		if m.Results != nil && free+len(t.Data) <= len(room) {
			copy(room[free:], t.Data)
			out.Segment, out.Offset = m.Results.Segment, m.Results.Offset+free
			free = (free + len(t.Data) + begunBytes - 1) &^ (begunBytes - 1)
		} else {
			begin := len(after)
			out.At = &begin
			after = append(after, t.Data...)
		}
		list[i] = out
	}
	if len(after) > math.MaxUint32 {
		return p.failed(m, stream.Errorf(stream.TooLarge, "isolate",
			"is true, and the outputs have %d bytes: at most %d are possible. Send fewer rows, or a smaller input",
			len(after), math.MaxUint32))
	}
	return p.send(map[string]any{"type": "result", "id": m.ID, "outputs": list}, after)
}
