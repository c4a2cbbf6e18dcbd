package streams_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"millrace/ingest"
	"millrace/ingest/streams"
	"millrace/internal/child"
	"millrace/internal/testneeds"
)

// readVideo reads the messages of a watcher until n fragments have come, and returns them with the MIME type of the
// text.
func readVideo(t *testing.T, ws *websocket.Conn, n int) (mime string, file []byte) {
	t.Helper()
	for n > -1 { // the header comes before the fragments
		kind, data, err := ws.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		if kind == websocket.BinaryMessage {
			file = append(file, data...)
			n--
			continue
		}
		var text struct {
			Stream, Mime  string
			Width, Height int
		}
		if err := json.Unmarshal(data, &text); err != nil || mime != "" || text.Stream != "door" || text.Width != 160 ||
			text.Height != 120 {
			t.Fatalf("%v %s", err, data)
		}
		mime = text.Mime
	}
	return mime, file
}

// Over WebSocket the drawn video comes as fragmented MP4, encoded once for all watchers; ffprobe reads the messages of
// a watcher who came later. Without a free encoder, JPEG pictures can be watched.
func TestWatchVideoSocket(t *testing.T) {
	yard := looped(t)
	yard.Name = "yard"
	r := start(t, streams.Options{Limits: ingest.Limits{MaxEncoders: 1}, Sandbox: child.SandboxError() == nil,
		Streams: []streams.Config{looped(t), yard}})
	dial := func(name, origin string) (*websocket.Conn, *http.Response, error) {
		return websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(r.url, "http")+"/v2/streams/"+name+"/video",
			http.Header{"Origin": {origin}})
	}
	watch := func() *websocket.Conn {
		ws, _, err := dial("door", r.url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ws.Close() })
		return ws
	}
	first := watch()
	readVideo(t, first, 3)
	second := watch()
	mime, file := readVideo(t, second, 12)
	if !strings.HasPrefix(mime, `video/mp4; codecs="avc1.42C0`) {
		t.Errorf("%s", mime)
	}
	path := filepath.Join(t.TempDir(), "video.mp4")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(testneeds.Program(t, "ffprobe"), "-v", "error", "-count_frames", "-show_entries",
		"stream=codec_name,width,height,nb_read_frames", "-of", "csv=p=0", path).CombinedOutput()
	if err != nil || string(out) != "h264,160,120,12\n" {
		t.Errorf("%v %s", err, out)
	}
	if st := r.streams.Stats().Streams[0]; st.Encoders != 1 || st.Watchers != 2 || st.EncoderFails != 0 ||
		st.Encoded < 12 {
		t.Errorf("%+v", st)
	}
	for _, c := range []struct {
		stream, origin, want string
		status               int
	}{{"yard", r.url, "limits.max_encoders", 503}, {"door", "http://192.0.2.1", "origins", 403}} {
		_, resp, err := dial(c.stream, c.origin)
		if err == nil || resp == nil {
			t.Fatalf("%v, want an HTTP error", err)
		}
		text := make([]byte, 1000)
		n, _ := resp.Body.Read(text)
		if resp.StatusCode != c.status || !strings.Contains(string(text[:n]), c.want) {
			t.Errorf("%d %s, want %d %s", resp.StatusCode, text[:n], c.status, c.want)
		}
	}
	r.want(204, "DELETE", "/v2/streams/door", "")
	if code, last := rest(t, second); code != websocket.CloseNormalClosure ||
		last != `{"stream":"door","closed":"deleted"}` {
		t.Errorf("closed with %d after %s", code, last)
	}
	yards, _, err := dial("yard", r.url) // the place is free
	if err != nil {
		t.Fatal(err)
	}
	_ = yards.Close()
}
