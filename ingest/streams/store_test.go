package streams_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"millrace/ingest"
	"millrace/ingest/streams"
)

func open(t *testing.T, path string) *streams.Store {
	t.Helper()
	k, err := streams.OpenStore(path, nil, 64)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Streams added by requests start again with the server, with their changes; streams removed by requests do not.
func TestStreamsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streams.json")
	url := served(t, clip(t, 1))
	r := start(t, streams.Options{Store: open(t, path), AllowPrivate: true,
		Streams: []streams.Config{{Name: "own", Source: clip(t, 1), Model: "eyes"}}})
	for _, name := range []string{"door", "yard"} {
		r.want(201, "POST", "/v2/streams", `{"name":"`+name+`","source":"`+url+
			`","model":"eyes","loop":true,"sinks":{"webhook":"http://127.0.0.1:9/","webhook_secret":"geheim"}}`)
	}
	r.want(409, "POST", "/v2/streams", `{"name":"own","source":"`+url+`","model":"eyes"}`) // and it is not kept
	r.want(200, "PATCH", "/v2/streams/own", `{"paused":true}`)
	r.want(200, "PATCH", "/v2/streams/door", `{"paused":true,"max_fps":2,"priority":"low"}`)
	r.want(204, "DELETE", "/v2/streams/yard", "")
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	r.stop()

	r = start(t, streams.Options{Store: open(t, path), AllowPrivate: true})
	if s := r.until("door", "frames", func(s shown) bool {
		return s.Frames > 0
	}); !s.Paused || s.Policy.MaxFPS != 2 || s.Policy.Priority != "low" || s.Results != 0 {
		t.Errorf("%+v", s)
	}
	r.want(404, "GET", "/v2/streams/yard", "")
	r.want(404, "GET", "/v2/streams/own", "")
	r.want(204, "DELETE", "/v2/streams/door", "")
	if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), "door") {
		t.Errorf("%v %s", err, text)
	}
	if files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
}

// Of concurrent changes, the store keeps the change applied last.
func TestChangesAreStoredInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streams.json")
	r := start(t, streams.Options{Store: open(t, path), AllowPrivate: true})
	r.want(201, "POST", "/v2/streams", `{"name":"door","source":"http://127.0.0.1:9/","model":"eyes"}`)
	for range 20 {
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() { r.call("PATCH", "/v2/streams/door", fmt.Sprintf(`{"max_fps":%d}`, i+1)) })
		}
		all.Wait()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var kept struct {
			Streams []struct {
				MaxFPS float64 `json:"max_fps"`
			}
		}
		if err := json.Unmarshal(text, &kept); err != nil || len(kept.Streams) != 1 {
			t.Fatalf("%v in %s", err, text)
		}
		if s := r.show("door"); kept.Streams[0].MaxFPS != s.Policy.MaxFPS || s.Policy.MaxFPS == 0 {
			t.Fatalf("max_fps is %v, kept is %v", s.Policy.MaxFPS, kept.Streams[0].MaxFPS)
		}
	}
}

// After any requests, the server starts again with the stored streams.
func TestKeptBesideTheConfiguration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "streams.json")
	url := served(t, clip(t, 1))
	own := []streams.Config{{Name: "own", Source: clip(t, 1), Model: "eyes"}}
	k, err := streams.OpenStore(path, own, 2)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, streams.Options{Store: k, AllowPrivate: true, Streams: own, Limits: ingest.Limits{MaxStreams: 2}})
	r.want(204, "DELETE", "/v2/streams/own", "")
	body := func(name string) string { return `{"name":"` + name + `","source":"` + url + `","model":"eyes"}` }
	r.want(409, "POST", "/v2/streams", body("own"))
	r.want(201, "POST", "/v2/streams", body("door"))
	if text := r.want(503, "POST", "/v2/streams", body("yard")); !strings.Contains(text, "limits.max_streams") {
		t.Error(text)
	}
	if _, err := streams.OpenStore(path, own, 2); err != nil {
		t.Error(err)
	}
}

// A stream that cannot be stored does not start, and other failures to store are reported.
func TestStoreCannotWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	url := served(t, clip(t, 1))
	r := start(t, streams.Options{Store: open(t, filepath.Join(dir, "streams.json")), AllowPrivate: true})
	r.want(201, "POST", "/v2/streams", `{"name":"door","source":"`+url+`","model":"eyes"}`)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][3]string{
		{"POST", "/v2/streams", `{"name":"yard","source":"` + url + `","model":"eyes"}`},
		{"PATCH", "/v2/streams/door", `{"paused":true}`},
		{"DELETE", "/v2/streams/door", ""},
	} {
		if text := r.want(503, c[0], c[1], c[2]); !strings.Contains(text, "streams_file: cannot be written") {
			t.Errorf("%s: %s", c[0], text)
		}
	}
	r.want(404, "GET", "/v2/streams/yard", "")
	r.want(404, "GET", "/v2/streams/door", "")
}

func TestBrokenKeptFiles(t *testing.T) {
	own := []streams.Config{{Name: "own"}}
	path := filepath.Join(t.TempDir(), "streams.json")
	const fine = `{"name":"a","source":"rtsp://example.com/","model":"m","sinks":{}}`
	for text, want := range map[string]string{
		``:                                "is not in the form that the server writes",
		`{"streams":[`:                    "is not in the form that the server writes",
		`{"streams":[` + fine + `]} more`: "there is more text after the object",
		`{"streams":[null]}`:              "streams[0] is empty",
		`{"streams":[{"fps":"a"}]}`:       "streams[0].fps: ",
		`{"streams":[{"nam":"a"}]}`:       "streams[0].nam: ",
		`{"streams":[` + fine + `,` + fine +
			`]}`: `streams[1].name: "a" is given twice`,
		`{"streams":[` + strings.Replace(fine, `"m"`, `""`, 1) + `]}`:        "streams[0].model: ",
		`{"streams":[` + strings.Replace(fine, "rtsp://", "exec:", 1) + `]}`: "streams[0].source: ",
		`{"streams":[` + strings.Replace(fine, `"a"`, `"own"`, 1) +
			`]}`: "is the name of a stream of the configuration too",
		`{"streams":[` + fine + `,` + strings.Replace(fine, `"a"`, `"b"`, 1) + `]}`: "limits.max_streams",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := streams.OpenStore(path, own, 2)
		if err == nil || !strings.HasPrefix(err.Error(), "streams_file: "+path+": ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, want %s", text, err, want)
		}
		if now, _ := os.ReadFile(path); string(now) != text {
			t.Errorf("a broken file was changed: %s", now)
		}
	}
	if _, err := streams.OpenStore(filepath.Join(path, "below", "a.json"), nil, 2); err == nil ||
		!strings.HasPrefix(err.Error(), "streams_file: ") {
		t.Errorf("%v", err)
	}
}

// Any parsed store can be written and read again.
func FuzzStore(f *testing.F) {
	f.Add([]byte(`{"streams":[{"name":"a","source":"rtsp://u:p@example.com/","model":"m","max_fps":2.5,` +
		`"sinks":{"webhook":"https://example.com/"}}]}`))
	f.Add([]byte(`{"streams":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		once, err := streams.ReadStore(text)
		if err != nil {
			return
		}
		if twice, err := streams.ReadStore(once); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s became %s, %v", once, twice, err)
		}
	})
}
