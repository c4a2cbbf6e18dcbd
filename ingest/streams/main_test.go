package streams_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"go.uber.org/goleak"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/streams"
	"millrace/internal/child"
	"millrace/internal/codec"
	"millrace/internal/httpd"
	"millrace/internal/role"
	"millrace/internal/testneeds"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
	_ "millrace/workers/delay"
	_ "millrace/workers/identity"
	_ "millrace/workers/motion"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Once started, fasthttp's clock runs for ever.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		// fasthttp's pools notice their end only at the next tick, 10 s later.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.Cleanup(func(code int) {
			if child.LiveChildren() != 0 {
				fmt.Fprintln(os.Stderr, "children left:", child.LiveChildren())
				code = 1
			}
			os.Exit(code)
		}))
}

const (
	// patience limits every wait. No wait should come close.
	patience = time.Minute
	// replyTime is the listener's time-out for one reply: not applied to watchers, and longer than any pause of the
	// machine.
	replyTime = 4 * time.Second
)

// rig is an HTTP listener, models and the adapter, connected as in a server. The rig is also the backend.
type rig struct {
	t       *testing.T
	url     string
	mem     *buf.Pool
	models  *workers.Manager
	streams *streams.Adapter
	stop    func()
}

func (r *rig) Open(model, version string, opts stream.Options, sink stream.Sink) (*stream.Stream, error) {
	g, err := r.models.Group(model, version)
	if err != nil {
		return nil, err
	}
	return g.Open(opts, sink)
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

var eyes = workers.Config{Name: "eyes", Kind: "motion"}

// start makes a rig with the model eyes, which finds moving objects.
func start(t *testing.T, o streams.Options) *rig {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	if o.Log == nil {
		o.Log = quiet
	}
	mem := buf.NewPool(256 << 20)
	r := &rig{t: t, mem: mem, models: workers.NewManager(workers.ManagerOptions{Memory: mem, Pixels: codec.Limits{},
		Log: quiet})}
	r.load(eyes)
	h, err := httpd.New(httpd.Config{Addr: "127.0.0.1:0", WriteTimeout: replyTime, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	gate := ingest.NewGate(r, access.AllowEverybody(access.Quotas{}))
	h.App.Use(func(c *fiber.Ctx) error {
		client, err := gate.Enter(c.UserContext(), access.Credentials{}, access.Need{Role: role.Manage})
		if err != nil {
			return err
		}
		httpd.SetClient(c, client)
		return c.Next()
	})
	r.streams = streams.New(h, o)
	addr, err := h.Listen()
	if err != nil {
		t.Fatal(err)
	}
	r.url = "http://" + addr.String()
	ctx, end := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	tasks.Go(func() {
		if err := h.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	tasks.Go(func() {
		if err := r.streams.Serve(ctx, gate); err != nil {
			t.Error(err)
		}
	})
	<-r.streams.Serving()
	r.stop = func() {
		http.DefaultClient.CloseIdleConnections()
		end()
		tasks.Wait()
	}
	t.Cleanup(func() {
		r.stop()
		closing, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.models.Close(closing); err != nil {
			t.Error(err)
		}
		if st := r.streams.Stats(); len(st.Streams) != 0 || st.Watchers != 0 || st.Panics != 0 {
			t.Errorf("left: %+v", st)
		}
		if n := mem.Stats().Leases; n != 0 {
			t.Errorf("%d leases left", n)
		}
		if n := child.LiveChildren(); n != 0 {
			t.Errorf("%d children left", n)
		}
	})
	return r
}

func (r *rig) load(c workers.Config) {
	r.t.Helper()
	if _, err := r.models.LoadConfig(r.t.Context(), c.WithDefaults(), false); err != nil {
		r.t.Fatal(err)
	}
}

// call makes a request with pairs of header names and values, and returns the status and body of the reply.
func (r *rig) call(method, path, body string, header ...string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// want makes a request and checks the status of the reply.
func (r *rig) want(status int, method, path, body string, header ...string) string {
	r.t.Helper()
	got, text := r.call(method, path, body, header...)
	if got != status {
		r.t.Fatalf("%s %s: %d %s, want %d", method, path, got, text, status)
	}
	return text
}

// shown is the part of a stream's report that the tests read.
type shown struct {
	Name, Source, State string
	Transport           string `json:"rtsp_transport"`
	Paused              bool
	Error               *struct{ Code, Kind, Message string }
	Policy              struct {
		Policy   string
		MaxAgeMS int     `json:"max_age_ms"`
		MaxFPS   float64 `json:"max_fps"`
		Priority string
	}
	Models                    []shownModel
	Width, Height             int
	PixelAspect               float64 `json:"pixel_aspect"`
	Frames, Results, Restarts uint64
	Skipped                   uint64
	Errors                    uint64
	Watchers                  int
	Drops                     map[string]uint64
	Sinks                     map[string]struct{ Sent, Retries, Lost uint64 }
	Lost                      struct{ Frames, Results, Lines uint64 }
}

// shownModel is the part of a model's report that the tests read.
type shownModel struct {
	Model, State string
	Error        *struct{ Code, Message string }
	Policy       struct {
		Policy   string
		MaxFPS   float64 `json:"max_fps"`
		Priority string
	}
	Results, Errors uint64
	Drops           map[string]uint64
}

// endings is the number of the model's ended frames.
func (m shownModel) endings() uint64 {
	n := m.Results + m.Errors
	for _, d := range m.Drops {
		n += d
	}
	return n
}

func (r *rig) show(name string) (s shown) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.want(200, "GET", "/v2/streams/"+name, "")), &s); err != nil {
		r.t.Fatal(err)
	}
	return s
}

// until waits for a state of a stream.
func (r *rig) until(name, what string, ok func(shown) bool) shown {
	r.t.Helper()
	for limit := time.Now().Add(patience); ; {
		s := r.show(name)
		if ok(s) {
			return s
		}
		if time.Now().After(limit) {
			r.t.Fatalf("not seen: %s: %+v %+v", what, s, s.Error)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// over waits until a stream has ended or failed, for watchers too: a watcher arriving shortly before sees the end.
func (r *rig) over(name, state string) shown {
	r.t.Helper()
	s := r.until(name, state, func(s shown) bool { return s.State == state })
	_, _ = r.call("GET", "/v2/streams/"+name+"/results", "")
	return s
}

// videos are the videos of clip by its arguments.
var videos struct {
	sync.Mutex
	made map[string][]byte
}

// clip is a video of so many seconds, 10 frames each, 160x120 pixels, made with more options of ffmpeg. The same video
// is encoded once for all tests.
func clip(t *testing.T, seconds int, options ...string) string {
	t.Helper()
	path, key := filepath.Join(t.TempDir(), "clip.mp4"), fmt.Sprintf("%d %q", seconds, options)
	videos.Lock()
	defer videos.Unlock()
	if made := videos.made[key]; made != nil {
		if err := os.WriteFile(path, made, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	args := append([]string{"-nostdin", "-v", "error", "-f", "lavfi", "-i",
		fmt.Sprintf("testsrc2=size=160x120:rate=10:duration=%d", seconds)}, options...)
	cmd := exec.Command(testneeds.Program(t, "ffmpeg"), append(args, "-pix_fmt", "yuv420p", "-movflags", "+faststart",
		path)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s (is ffmpeg installed? apt-get install ffmpeg)", err, out)
	}
	made, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if videos.made == nil {
		videos.made = map[string][]byte{}
	}
	videos.made[key] = made
	return path
}

// served is a video at an address.
func served(t *testing.T, path string) string {
	srv := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(path))))
	t.Cleanup(srv.Close)
	return srv.URL + "/" + filepath.Base(path)
}
