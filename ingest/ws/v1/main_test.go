package v1

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/decoders"
	"millrace/ingest/ws/conn"
	"millrace/internal/accept"
	"millrace/internal/role"
	"millrace/internal/wire"
	"millrace/stream"
	"millrace/stream/buf"
)

// rig is sessions in memory and in fake time; the test answers the frames. A rig is for one synctest bubble.
type rig struct {
	*Sessions
	t        *testing.T
	registry *conn.Registry
	decoders *decoders.Pool
	mem      *buf.Pool
	model    *stream.Model

	mu      sync.Mutex
	streams []*stream.Stream // in order of opening
	refuse  error            // of opening a stream
}

func newRig(t *testing.T, change func(*Options)) *rig {
	o := Options{ReplayBytes: 1 << 20, AdviseEvery: time.Second, StatsEvery: 3 * time.Second,
		Log: slog.New(slog.DiscardHandler)}
	o.MaxSessions, o.MaxMessage, o.OutboxMessages, o.OutboxBytes, o.Resume = 3, 1<<20, 1000, 1<<20, 30*time.Second
	if change != nil {
		change(&o)
	}
	r := &rig{
		t: t, mem: buf.NewPool(1 << 20), decoders: decoders.NewPool(decoders.Options{Log: o.Log}),
		model: &stream.Model{Name: "any", Version: "1", AcceptsAnyInput: true, Ragged: true, MaxBatch: 1,
			Policy: stream.Policy{Mode: stream.Latest, Window: 4}},
	}
	r.registry = conn.NewRegistry(conn.Options{
		Limits: o.Limits, PingEvery: time.Hour, PongWait: time.Hour, WriteWait: time.Minute, Log: o.Log,
	}, wire.Subprotocol)
	r.Sessions = NewSessions(r.registry, r.decoders, o)
	return r
}

// stop ends all sessions, and checks for leaks.
func (r *rig) stop() {
	r.t.Helper()
	r.registry.Close()
	r.registry.Drain()
	r.EndWaiting()
	r.registry.Stop()
	r.decoders.Close()
	if st, mem := r.Stats(), r.mem.Stats(); st != (Stats{}) || mem.Leases != 0 || r.registry.Stats().Panics != 0 {
		r.t.Errorf("left after the end: %+v, %+v, %+v", st, mem, r.registry.Stats())
	}
}

// rig is the backend, and the queue of the backend's streams.
func (r *rig) Open(_, _ string, opts stream.Options, sink stream.Sink) (*stream.Stream, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		return nil, r.refuse
	}
	st := stream.New(r.model, nowhere{}, sink, opts)
	r.streams = append(r.streams, st)
	return st, nil
}
func (r *rig) Models() ingest.Repository    { return repository{model: r.model} }
func (r *rig) Memory() *buf.Pool            { return r.mem }
func (r *rig) Sequences() *ingest.Sequences { return nil }
func (r *rig) State() ingest.State          { return ingest.State{Ready: true} }

type repository struct {
	ingest.Repository
	model *stream.Model
}

func (r repository) Model(string, string) (*stream.Model, bool, error) { return r.model, true, nil }

// nowhere is a queue whose frames nobody takes.
type nowhere struct{}

func (nowhere) Enqueue(*stream.Stream, any) {}
func (nowhere) Admit(bool) error            { return nil }
func (nowhere) AddWaiting(int)              {}
func (nowhere) Ended(*stream.Request)       {}
func (nowhere) Detach(*stream.Stream)       {}

// answer answers the next frame of the i-th stream, as a picture of the given size.
func (r *rig) answer(i, width, height int) {
	r.t.Helper()
	req := r.take(i)
	req.SentWidth, req.SentHeight = width, height
	finish(req)
}

// take binds the next frame of the i-th stream.
func (r *rig) take(i int) *stream.Request {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	st := r.streams[i]
	r.mu.Unlock()
	req, _ := st.Take(stream.Now(), 1, nil, 0)
	if req == nil {
		r.t.Fatalf("no frame of stream %d waits", i)
	}
	return req
}

func finish(req *stream.Request) {
	req.Finish(nil, nil, true)
	req.Unbind()
}

// client is a connection of a client.
type client struct {
	*websocket.Conn
	t *testing.T

	mu    sync.Mutex
	texts []string
	code  int // of the close frame; -1: no close frame
}

// connect makes a connection.
func (r *rig) connect() *client {
	return r.connectAs(r.clients(access.Quotas{})("192.0.2.1"))
}

// clients returns a function that returns the client at an address; each client has an account with the quotas.
func (r *rig) clients(q access.Quotas) func(address string) *ingest.Client {
	a, err := access.New(access.Options{Open: true, Quotas: q, Limit: &accept.Limit{}})
	if err != nil {
		r.t.Fatal(err)
	}
	gate := ingest.NewGate(r, a)
	return func(address string) *ingest.Client {
		c, err := gate.Enter(r.t.Context(), access.Credentials{Remote: &net.TCPAddr{IP: net.ParseIP(address)}},
			access.Need{Role: role.Infer})
		if err != nil {
			r.t.Fatal(err)
		}
		return c
	}
}

// connectAs makes a connection of a client.
func (r *rig) connectAs(of *ingest.Client) *client {
	r.t.Helper()
	near, far := net.Pipe()
	go func() {
		req, err := http.ReadRequest(bufio.NewReader(far))
		if err != nil {
			r.t.Error(err)
			return
		}
		c := r.registry.New(far, r.mem, Form)
		r.registry.Start(c, r.New(c, of, "any", "", stream.TraceContext{}), conn.Client{Account: of.Account()}, nil,
			req, nil)
	}()
	d := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}, NetDialContext: func(context.Context, string,
		string) (net.Conn, error) {
		return near, nil
	}}
	ws, _, err := d.Dial("ws://server.test/", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	v := &client{Conn: ws, t: r.t}
	go func() {
		for {
			kind, text, err := ws.ReadMessage()
			v.mu.Lock()
			if err != nil {
				v.code = -1
				if e, ok := err.(*websocket.CloseError); ok && e.Code != websocket.CloseAbnormalClosure {
					v.code = e.Code
				}
				v.mu.Unlock()
				return
			}
			if h, _, err := wire.ParseHeader(text, wire.Server); kind == websocket.BinaryMessage && err == nil {
				text = wire.AppendResult(nil, &wire.Result{SID: h.SID, Seq: h.Seq, Version: "binary"})
			}
			v.texts = append(v.texts, string(text))
			v.mu.Unlock()
		}
	}()
	return v
}

// hello makes a connection and returns the client and the session's token.
func (r *rig) hello() (v *client, token string) {
	r.t.Helper()
	v = r.connect()
	return v, find[*wire.Ready](v).ResumeToken
}

// all returns the messages received since the last call.
func (v *client) all() (out []wire.Message) {
	v.t.Helper()
	synctest.Wait()
	v.mu.Lock()
	texts := v.texts
	v.texts = nil
	v.mu.Unlock()
	for _, text := range texts {
		m, err := wire.ParseControl([]byte(text), wire.Server)
		if err != nil {
			v.t.Fatalf("%v: %s", err, text)
		}
		out = append(out, m)
	}
	return out
}

// ended returns the close code of the connection, 0 while open.
func (v *client) ended() int {
	synctest.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.code
}

// lose ends the connection without a close frame.
func (v *client) lose() {
	_ = v.NetConn().Close()
	synctest.Wait()
}

// find returns the only received message of a type.
func find[T wire.Message](v *client) (m T) {
	v.t.Helper()
	all := v.all()
	found := slices.DeleteFunc(slices.Clone(all), func(m wire.Message) bool { _, ok := m.(T); return !ok })
	if len(found) != 1 {
		v.t.Fatalf("%d messages of type %T in %s", len(found), m, describe(all))
	}
	return found[0].(T)
}

// expect compares the received messages with want, in the form of describe.
func (v *client) expect(want ...string) {
	v.t.Helper()
	if got := describe(v.all()); got != strings.Join(want, "; ") {
		v.t.Errorf("got  %s\nwant %s", got, strings.Join(want, "; "))
	}
}

// describe summarizes messages.
func describe(all []wire.Message) string {
	var out []string
	for _, m := range all {
		text := ""
		switch m := m.(type) {
		case *wire.Result:
			switch text = fmt.Sprintf("result %d/%d ack %d of %d", m.SID, m.Seq, m.Ack, m.Limit); {
			case m.Version == "binary":
				text = fmt.Sprintf("result %d/%d binary", m.SID, m.Seq)
			case m.Outputs != nil:
				text += " with outputs"
			}
		case *wire.Drop:
			text = fmt.Sprintf("drop %d %v %s ack %d of %d", m.SID, m.Seqs, m.Reason, m.Ack, m.Limit)
		case *wire.ErrorMessage:
			field, _, _ := strings.Cut(m.Message, ":")
			text = "error " + m.Code + " " + field
			if m.SID != nil {
				text += fmt.Sprint(" ", *m.SID)
			}
			if m.Seq != nil {
				text += fmt.Sprint("/", *m.Seq)
			}
		case *wire.Closed:
			text = fmt.Sprintf("closed %d %s %v", m.SID, m.Reason, m.Totals)
		default:
			b, _ := json.Marshal(m)
			text = m.Type() + " " + string(b)
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

func (v *client) say(text string) {
	v.t.Helper()
	if err := v.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		v.t.Fatal(err)
	}
}

func (v *client) frame(h wire.Header) {
	v.t.Helper()
	if h.Kind == 0 {
		h.Kind = wire.KindFrame
	}
	v.binary(append(wire.AppendHeader(nil, &h), 'x'))
}

func (v *client) binary(msg []byte) {
	v.t.Helper()
	if err := v.WriteMessage(websocket.BinaryMessage, msg); err != nil {
		v.t.Fatal(err)
	}
}

// frames sends frames of stream sid.
func (v *client) frames(sid uint32, seqs ...uint64) {
	v.t.Helper()
	for _, seq := range seqs {
		v.frame(wire.Header{SID: sid, Seq: seq})
	}
	synctest.Wait()
}
