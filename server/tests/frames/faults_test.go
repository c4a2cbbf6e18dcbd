package frames_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/batching"
	"millrace/internal/servertest"
	"millrace/stream"
	"millrace/workers"
)

// trouble is a worker that fails as a frame's bytes demand.
type trouble struct{ workers.Base }

var letGo chan struct{} // closed to let hung runs return; made anew by each test

func init() {
	workers.Register(workers.Kind{Name: "trouble", New: func() workers.Worker { return &trouble{} }})
}

func (*trouble) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 1}, nil
}

func (*trouble) Run(_ context.Context, b *batching.Batch) error {
	switch string(b.Requests[0].Payload) {
	case "panic":
		panic("as told")
	case "hang":
		<-letGo
	case "die":
		return workers.ErrBroken
	}
	b.Finish(0, []stream.Tensor{{Name: "ok", Datatype: stream.Uint8, Shape: []int{1}, Data: []byte{1}}})
	return nil
}

func files(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// A worker that panics, breaks or hangs fails its own frame, over each protocol; the following frames are answered,
// and nothing is left behind.
func TestFailingWorkersOverProtocols(t *testing.T) {
	before := files(t)
	letGo = make(chan struct{})
	s, end := servertest.Run(t, workers.Config{Name: "m", Source: "trouble", Limits: workers.Limits{Run: time.Second}})
	c := servertest.Dial(t, s, "/v2/models/m/stream?codec=opaque&policy=every")
	for _, x := range []struct{ frame, code string }{{"panic", "internal"}, {"die", "internal"}, {"hang", "timeout"}} {
		if got := servertest.Ask(t, c, websocket.BinaryMessage, []byte(x.frame)); !strings.Contains(got,
			`"code":"`+x.code+`"`) {
			t.Errorf("%s over WebSocket: %s", x.frame, got)
		}
		if got := servertest.Ask(t, c, websocket.BinaryMessage, []byte("fine")); !strings.Contains(got, `"name":"ok"`) {
			t.Errorf("after %s over WebSocket: %s", x.frame, got)
		}
		for _, y := range []struct {
			frame string
			good  bool
		}{{x.frame, false}, {"fine", true}} {
			r, err := http.Post("http://"+s.Addr("http")+"/v2/models/m/infer", "application/octet-stream",
				strings.NewReader(y.frame))
			if err != nil {
				t.Fatal(err)
			}
			if (r.StatusCode == http.StatusOK) != y.good {
				t.Errorf("%s over REST: %d", y.frame, r.StatusCode)
			}
			_ = r.Body.Close()
		}
	}
	close(letGo)
	_ = c.Close()
	if err := end(); err != nil {
		t.Error(err)
	}
	if m := s.Memory().Stats(); m.Leases != 0 {
		t.Errorf("%d leases left", m.Leases)
	}
	// the runtime keeps a few files open
	for limit := time.Now().Add(time.Minute); files(t) > before+2; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%d descriptors, %d before", files(t), before)
		}
	}
}

// A thousand bad frames in a row cause errors for their sender only.
func TestManyBadFramesOverWebSocket(t *testing.T) {
	s, end := servertest.Run(t, workers.Config{Name: "find", Source: "motion"})
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
		if m := s.Memory().Stats(); m.Leases != 0 {
			t.Errorf("%d leases left", m.Leases)
		}
	}()
	c := servertest.Dial(t, s, "/v2/models/find/stream?policy=every")
	defer c.Close()
	for i := range 1000 {
		bad, code := servertest.HugePNG(), "too_large"
		if i%2 == 1 {
			bad, code = []byte("\xff\xd8\xff\xe0 not much of a picture"), `"error"`
		}
		if got := servertest.Ask(t, c, websocket.BinaryMessage, bad); strings.Contains(got, "codec:") ||
			!strings.Contains(got, code) || !strings.Contains(got, `"error"`) {
			t.Fatalf("frame %d: %s", i, got)
		}
	}
	raw := servertest.Dial(t, s, "/v2/models/find/stream?policy=every&codec=rgb24&width=64&height=48")
	defer raw.Close()
	if got := servertest.Ask(t, raw, websocket.BinaryMessage, bytes.Repeat([]byte{90}, 64*48*3)); !strings.Contains(got,
		`"boxes"`) {
		t.Errorf("a good frame afterwards: %s", got)
	}
}

// A URL where no server listens is an error with a code; the session continues.
func TestPullFromNobodyOverWebSocket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	_ = l.Close()
	s, end := servertest.Run(t, workers.Config{Name: "find", Source: "motion"})
	c := servertest.Dial(t, s, "/v2/models/find/stream")
	if got := servertest.Ask(t, c, websocket.TextMessage,
		[]byte(`{"url":"http://`+nobody+`/x.mp4"}`)); !strings.Contains(got,
		"permission_denied") || !strings.Contains(got, "sources.allow_private") {
		t.Errorf("a private address: %s", got)
	}
	if got := servertest.Ask(t, c, websocket.BinaryMessage, []byte("not a picture")); !strings.Contains(got,
		"unsupported") {
		t.Errorf("afterwards: %s", got)
	}
	_ = c.Close()
	if err := end(); err != nil {
		t.Error(err)
	}
}
