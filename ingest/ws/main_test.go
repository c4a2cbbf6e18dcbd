package ws_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/ws"
	"millrace/internal/codec"
	"millrace/internal/httpd"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
	_ "millrace/workers/delay"
	_ "millrace/workers/identity"
	_ "millrace/workers/motion"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// fasthttp's clock, once started, never ends.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		// fasthttp's pools notice their end at the next tick, 10 s later.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// patience is the time-out of every wait in these tests, far above any expected wait.
const patience = time.Minute

// rig is an HTTP listener, models and the adapter, connected as in a server.
type rig struct {
	access *access.Access
	gate   *ingest.Gate
	keys   map[string]string // of the clients, by name
	file   string            // of the keys
	t      testing.TB
	addr   string
	mem    *buf.Pool
	models *workers.Manager
	ws     *ws.Adapter
	stop   func() // ends the adapter, waits for the end, and checks for leaks

	mu      sync.Mutex
	streams []*stream.Stream // opened streams
	refuse  func() error     // asked before a stream is opened; nil: accept every stream

	panics uint64 // expected panics
}

// allow makes the clients of the names, each with a key and an account with the quotas.
func (r *rig) allow(q access.Quotas, names ...string) {
	r.t.Helper()
	r.keys, r.file = map[string]string{}, filepath.Join(r.t.TempDir(), "keys")
	var entries []access.Key
	for _, name := range names {
		k, text := access.NewKey(name, access.Grant{Roles: role.All.Names()})
		entries, r.keys[name] = append(entries, k), text
	}
	err := access.WriteKeys(r.file, entries)
	if err == nil {
		r.access, err = access.New(access.Options{Keys: r.file, Quotas: q, Log: slog.New(slog.DiscardHandler)})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// enter returns the client with a name.
func (r *rig) enter(ctx context.Context, name string) (*ingest.Client, error) {
	return r.gate.Enter(ctx, access.Credentials{Keys: []string{r.keys[name]}}, access.Need{Role: role.Infer})
}

// revoke removes all keys.
func (r *rig) revoke() {
	if err := access.WriteKeys(r.file, nil); err != nil {
		r.t.Fatal(err)
	}
	r.access.Recheck()
	r.access.Check(time.Now())
}

// rig is also the backend.
func (r *rig) Open(model, version string, opts stream.Options, sink stream.Sink) (*stream.Stream, error) {
	r.mu.Lock()
	refuse := r.refuse
	r.mu.Unlock()
	if refuse != nil {
		if err := refuse(); err != nil {
			return nil, err
		}
	}
	g, err := r.models.Group(model, version)
	if err != nil {
		return nil, err
	}
	s, err := g.Open(opts, sink)
	if err == nil {
		r.mu.Lock()
		r.streams = append(r.streams, s)
		r.mu.Unlock()
	}
	return s, err
}

// accepted returns how many frames the n-th stream has accepted.
func (r *rig) accepted(n int) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.streams[n].Counts().Accepted
}

// stream returns the n-th opened stream.
func (r *rig) stream(n int) *stream.Stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.streams[n]
}
func (r *rig) Models() ingest.Repository    { return repository{m: r.models} }
func (r *rig) Memory() *buf.Pool            { return r.mem }
func (r *rig) State() ingest.State          { return ingest.State{Ready: true} }
func (r *rig) Sequences() *ingest.Sequences { return nil }

type repository struct {
	ingest.Repository
	m *workers.Manager
}

func (r repository) Model(name, version string) (*stream.Model, bool, error) {
	g, err := r.m.Group(name, version)
	if err != nil {
		return nil, false, err
	}
	return g.Model(), g.Ready(), nil
}
func (r repository) Index() []ingest.Entry         { return nil }
func (r repository) Choose(name string) string     { return r.m.Choose(name) }
func (r repository) Versions(name string) []string { return r.m.Versions(name) }
func (r repository) Load(ctx context.Context, name string, how ingest.Load) (ingest.Loaded, error) {
	loaded, err := r.m.Load(ctx, name, workers.Load(how))
	return ingest.Loaded(loaded), err
}
func (r repository) Unload(ctx context.Context, endpoint string, _ ingest.Unload) error {
	return r.m.Unload(ctx, endpoint, "")
}
func (r repository) Scale(ctx context.Context, endpoint string, instances int) error {
	return r.m.Scale(ctx, endpoint, instances)
}

// start makes a rig with the models echo (identity), slow (delay), and more.
func start(t testing.TB, o ws.Options, more ...workers.Config) *rig {
	t.Helper()
	return startFor(t, o, access.Quotas{}, more...)
}

// startFor is start for clients with the quotas.
func startFor(t testing.TB, o ws.Options, q access.Quotas, more ...workers.Config) *rig {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	o.Log = quiet
	mem := buf.NewPool(256 << 20)
	r := &rig{t: t, mem: mem, models: workers.NewManager(workers.ManagerOptions{Memory: mem, Pixels: codec.Limits{},
		Log: quiet})}
	models := append([]workers.Config{
		{Name: "echo", Kind: "identity"},
		{Name: "slow", Kind: "delay", Params: stream.Params{"fixed": "20ms", "per_item": "1ms"}},
	}, more...)
	for _, m := range models {
		m := m.WithDefaults()
		if _, err := r.models.LoadConfig(t.Context(), m, false); err != nil {
			t.Fatal(err)
		}
	}
	h, err := httpd.New(httpd.Config{Addr: "127.0.0.1:0", Origins: []string{"https://friend.example"},
		HeaderTimeout: 4 * time.Second, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	r.allow(q, "camera", "other")
	r.gate = ingest.NewGate(r, r.access)
	h.App.Use(func(c *fiber.Ctx) error {
		client, err := r.enter(c.UserContext(), c.Get("Of-Account", "camera"))
		if err != nil {
			return err
		}
		httpd.SetClient(c, client)
		return c.Next()
	})
	r.ws = ws.New(h, o)
	addr, err := h.Listen()
	if err != nil {
		t.Fatal(err)
	}
	r.addr = addr.String()
	webCtx, endWeb := context.WithCancel(context.Background())
	wsCtx, endWS := context.WithCancel(context.Background())
	var web, sessions sync.WaitGroup
	web.Go(func() {
		if err := h.Serve(webCtx); err != nil {
			t.Error(err)
		}
	})
	sessions.Go(func() {
		if err := r.ws.Serve(wsCtx, r.gate); err != nil {
			t.Error(err)
		}
	})
	r.stop = sync.OnceFunc(func() {
		endWS()
		sessions.Wait()
		endWeb()
		web.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.models.Close(ctx); err != nil {
			t.Error(err)
		}
		if st := r.ws.Stats(); st.Conns != 0 || st.OutboxBytes != 0 || st.KeptBytes != 0 || st.Pulls != 0 ||
			st.Decoders != 0 || st.Panics != r.panics {
			t.Errorf("left after the end: %+v", st)
		}
		if st := mem.Stats(); st.Leases != 0 || st.Leased != 0 {
			t.Errorf("%d leases of %d bytes left", st.Leases, st.Leased)
		}
	})
	t.Cleanup(r.stop)
	r.until("serving", func() bool {
		resp, err := http.Get("http://" + r.addr + "/v2/models/none/stream")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusNotFound
	})
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return r
}

// until polls: the far side of a socket has no event to wait for.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			r.t.Fatalf("never: %s; %+v", what, r.ws.Stats())
		}
		time.Sleep(time.Millisecond)
	}
}

// reply is any text message.
type reply struct {
	ID      string
	Seq     *uint64 `json:"seq"`
	Model   string  `json:"model"`
	Dropped string  `json:"dropped"`
	Outputs []struct {
		Name, Datatype string
		Shape          []int
		Data           []any
	} `json:"outputs"`
	Timing map[string]int64 `json:"timing"`
	Error  *struct {
		Code, Message string
		Retryable     bool
	} `json:"error"`
	Width, Height, Batch int
	SourceWidth          int `json:"source_width"`
	SourceHeight         int `json:"source_height"`
	Done                 bool
	Frames, Drops        int
	PTS                  int64 `json:"pts_us"`
}

type client struct {
	*websocket.Conn
	t testing.TB
}

func (r *rig) dial(pathAndQuery string) *client {
	r.t.Helper()
	c, resp, err := websocket.DefaultDialer.Dial("ws://"+r.addr+pathAndQuery, nil)
	if err != nil {
		r.t.Fatalf("dial %s: %v (%v)", pathAndQuery, err, resp)
	}
	r.t.Cleanup(func() { c.Close() })
	return &client{c, r.t}
}

func (c *client) ReadMessage() (int, []byte, error) {
	_ = c.SetReadDeadline(time.Now().Add(patience))
	return c.Conn.ReadMessage()
}

func (c *client) send(b []byte) {
	c.t.Helper()
	if err := c.WriteMessage(websocket.BinaryMessage, b); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) say(text string) {
	c.t.Helper()
	if err := c.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) next() reply {
	c.t.Helper()
	kind, b, err := c.ReadMessage()
	if err != nil {
		c.t.Fatal(err)
	}
	if kind != websocket.TextMessage {
		c.t.Fatalf("a binary message of %d bytes", len(b))
	}
	var m reply
	if err := json.Unmarshal(b, &m); err != nil {
		c.t.Fatalf("%v in %s", err, b)
	}
	return m
}

func (c *client) nextError(code string, seq int, words ...string) {
	c.t.Helper()
	m := c.next()
	if m.Error == nil || m.Error.Code != code {
		c.t.Fatalf("want error %s, got %+v %+v", code, m, m.Error)
	}
	if seq < 0 && m.Seq != nil || seq >= 0 && (m.Seq == nil || *m.Seq != uint64(seq)) {
		c.t.Fatalf("seq %v, want %d", m.Seq, seq)
	}
	for _, w := range words {
		if !strings.Contains(m.Error.Message, w) {
			c.t.Errorf("%q is not in %q", w, m.Error.Message)
		}
	}
}

// closed reads the close frame.
func (c *client) closed(code int) {
	c.t.Helper()
	_, b, err := c.ReadMessage()
	if !websocket.IsCloseError(err, code) {
		c.t.Fatalf("want close %d, got %q %v", code, b, err)
	}
	c.Close()
}
