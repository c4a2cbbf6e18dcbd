//go:build unix

package frames_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/config"
	"millrace/internal/servertest"
)

// The configuration has a stream from a folder of pictures to a Unix socket: each picture has one line, in order, and
// an unreadable picture has an error. Relative paths start at the file's folder.
func TestFolderToSocket(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pictures"), 0o700); err != nil {
		t.Fatal(err)
	}
	for n := range 12 {
		var b bytes.Buffer
		if err := jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, 64, 48)), nil); err != nil {
			t.Fatal(err)
		}
		data := b.Bytes()
		switch n {
		case 5:
			data = []byte("no picture")
		case 9:
			data = data[:len(data)/4] // begins like a valid picture
		}
		if err := os.WriteFile(filepath.Join(dir, "pictures", fmt.Sprintf("p%d.jpg", n)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "out.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	path := filepath.Join(dir, "millrace.yaml")
	text := `
http: 127.0.0.1:0
grpc: off
models:
  - {name: find, source: motion}
streams:
  - {name: once, source: "folder:pictures", model: find, policy: every, fps: 100, sinks: {socket: out.sock}}
  - {name: again, source: "folder:pictures", model: find, fps: 100, loop: true}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	s, stop := servertest.RunWith(t, cfg)
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	_ = l.(*net.UnixListener).SetDeadline(time.Now().Add(time.Minute))
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	next := 0
	in := bufio.NewScanner(c)
	for ; in.Scan(); next++ {
		var line struct {
			Stream string
			Seq    int
			PTS    int `json:"pts_us"`
			Width  int
			Error  *struct{ Code, Message string }
		}
		if err := json.Unmarshal(in.Bytes(), &line); err != nil || line.Stream != "once" || line.Seq != next ||
			line.PTS != next*10_000 {
			t.Fatalf("%v: line %d: %s", err, next, in.Bytes())
		}
		if bad := next == 5 || next == 9; bad != (line.Error != nil) || !bad && line.Width != 64 {
			t.Errorf("%s", in.Bytes())
		}
		if next == 5 && (line.Error == nil || !strings.HasPrefix(line.Error.Message, "p5.jpg: ")) {
			t.Errorf("%s", in.Bytes())
		}
	}
	if next != 12 || in.Err() != nil {
		t.Errorf("%d lines, %v", next, in.Err())
	}
	var shown struct {
		State                   string
		Frames, Results, Errors int
		Sinks                   map[string]struct{ Sent, Lost int }
	}
	for limit := time.Now().Add(time.Minute); shown.State != "ended"; {
		resp, err := http.Get(s.URL("http") + "/v2/streams/once")
		if err != nil {
			t.Fatal(err)
		}
		err = json.NewDecoder(resp.Body).Decode(&shown)
		_ = resp.Body.Close()
		if err != nil || time.Now().After(limit) {
			t.Fatalf("%v %+v", err, shown)
		}
	}
	if shown.Frames != 12 || shown.Results != 10 || shown.Errors != 2 || shown.Sinks["socket"].Sent != 12 ||
		shown.Sinks["socket"].Lost != 0 {
		t.Errorf("%+v", shown)
	}

	// Viewers can also watch pictures passed on without decoding.
	resp, err := http.Get(s.URL("http") + "/v2/streams/again/video")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, boundary, _ := strings.Cut(resp.Header.Get("Content-Type"), "boundary=")
	part, err := multipart.NewReader(resp.Body, boundary).NextPart()
	if err != nil {
		t.Fatal(err)
	}
	if img, err := jpeg.Decode(part); err != nil || img.Bounds().Dx() != 64 || img.Bounds().Dy() != 48 {
		t.Errorf("%v", err)
	}

	// Neither may come from a request.
	for body, field := range map[string]string{
		`{"name":"a","source":"folder:/tmp","model":"find"}`:                                               "source",
		`{"name":"a","source":"http://192.0.2.1/","model":"find","sinks":{"socket":"/run/millrace.sock"}}`: "sinks.socket",
	} {
		resp, err := http.Post(s.URL("http")+"/v2/streams", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 403 || !strings.HasPrefix(string(text), `{"error":"`+field+`: `) ||
			!strings.Contains(string(text), "permission_denied") {
			t.Errorf("%s: %d %s", body, resp.StatusCode, text)
		}
	}
}

// Settings of other kinds of sources are refused by name.
func TestSettingsOfOtherSources(t *testing.T) {
	for entry, want := range map[string]string{
		`{name: a, model: m, source: "folder:x", width: 640}`: "streams[0].width: is for video " +
			"sources, but this one is folder",
		`{name: a, model: m, source: "folder:"}`:        "streams[0].source: has no folder",
		`{name: a, model: m, source: "flder:x"}`:        "folder",
		`{name: a, model: m, source: x.mp4, fps: 2000}`: "streams[0].fps: 2000 is not between",
		`{name: a, model: m, source: x.mp4, sinks: {max_size: 1MiB}}`: "streams[0].sinks.max_size: is set " +
			"without sinks.file",
		`{name: a, model: m, source: x.mp4, sinks: {sokcet: /run/x}}`: "streams[0].sinks.sokcet: is not a " +
			"setting (did you mean socket?)",
		`{name: a, model: m, source: x.mp4, sinks: {file: f, max_size: 9}}`: "streams[0].sinks.max_size: 9 is less than 1KiB",
	} {
		_, err := config.Parse([]byte("models:\n  - {name: m, source: motion}\nstreams:\n  - "+entry+"\n"), "f.yaml")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "f.yaml:4: ") {
			t.Errorf("%s\n%v, want %s", entry, err, want)
		}
	}
}
