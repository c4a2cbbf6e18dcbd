package streams_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/ingest/sinks"
	"millrace/ingest/streams"
)

// A request may name only new files in one folder, up to the client's limit of bytes.
func TestFilesOfRequests(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "sub"), 0o755), os.Symlink(outside, filepath.Join(dir, "out")),
		os.Symlink(filepath.Join(outside, "x"), filepath.Join(dir, "link")),
		os.WriteFile(filepath.Join(dir, "mine"), []byte("mine\n"), 0o600), os.WriteFile(filepath.Join(dir, "log.2"),
			nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	files, err := sinks.OpenFiles(dir, 256<<10)
	if err != nil {
		t.Fatal(err)
	}
	camera := newMotionJPEG(t, 64, 48)
	r := start(t, streams.Options{AllowPrivate: true, Files: files})
	add := func(name, sinks string) (int, string) {
		return r.call("POST", "/v2/streams", fmt.Sprintf(`{"name":%q,"source":%q,"model":"eyes","sinks":{%s}}`, name,
			camera.URL, sinks))
	}
	for name, want := range map[string]string{
		"../x": "400 ", "/etc/x": "400 ", "out/x": "400 ", "link": "409 ", "mine": "409 ", "log": "409 ",
		"a.1": "400 ", ".hidden": "400 ", "sub/../x": "400 ", "nothing/x": "400 ", ".": "400 ",
	} {
		if code, text := add("bad", fmt.Sprintf(`"file":%q,"max_size":1024`,
			name)); !strings.HasPrefix(fmt.Sprintf("%d ", code), want) || !strings.Contains(text, "sinks.file: ") {
			t.Errorf("%s: %d %s, want %s", name, code, text, want)
		}
	}
	if code, text := add("bad", `"file":"large.jsonl"`); code != 429 || !strings.Contains(text, "sinks.client_bytes") {
		t.Errorf("a file of the default size: %d %s", code, text)
	}
	if code, text := add("door", `"file":"sub/door.jsonl","max_size":16384`); code != 201 {
		t.Fatalf("%d %s", code, text)
	}
	if code, text := add("second", `"file":"sub/door.jsonl","max_size":16384`); code != 409 {
		t.Errorf("the same file: %d %s", code, text)
	}
	if code, text := add("door", `"file":"undone.jsonl","max_size":16384`); code != 409 {
		t.Errorf("the same stream: %d %s", code, text)
	}
	if _, err := os.Lstat(filepath.Join(dir, "undone.jsonl")); err == nil {
		t.Error("the file of a stream that was refused is left")
	}
	door := filepath.Join(dir, "sub/door.jsonl")
	r.until("door", "a full file", func(s shown) bool { _, err := os.Stat(door + ".1"); return err == nil })
	if st, err := os.Stat(door + ".1"); err != nil || st.Size() > 16384 {
		t.Errorf("%v, %v", st, err)
	}
	// The stream changes its file while running; bytes written to the old file still count.
	r.want(200, "PATCH", "/v2/streams/door", `{"sinks":{"file":"other.jsonl"}}`)
	r.until("door", "results in the other file", func(s shown) bool {
		st, err := os.Stat(filepath.Join(dir, "other.jsonl"))
		return err == nil && st.Size() > 0
	})
	if code, text := r.call("PATCH", "/v2/streams/door", `{"sinks":{"max_size":65536}}`); code != 429 {
		t.Errorf("%d %s", code, text)
	}
	r.want(200, "PATCH", "/v2/streams/door", `{"sinks":{"file":""}}`)
	if left, _ := filepath.Glob(filepath.Join(outside, "*")); len(left) > 0 {
		t.Errorf("outside of the folder there is %v", left)
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "mine")); string(text) != "mine\n" {
		t.Errorf("a file that existed has %q", text)
	}
}

// A stored stream with a file outside the folder does not run, says why, stays stored, and runs after a change of its
// sinks.
func TestKeptFileOutside(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	camera := newMotionJPEG(t, 64, 48)
	for _, c := range []struct{ name, file, folder, want string }{
		{"an absolute path", filepath.Join(outside, "x"), dir, "sinks.folder, such as door.jsonl"},
		{"a path upwards", "../" + filepath.Base(outside) + "/x", dir, "sinks.folder, such as door.jsonl"},
		{"a link", "out/x", dir, "is not in the folder sinks.folder: "},
		{"no folder", filepath.Join(outside, "x"), "", "has no folder for such files: set sinks.folder"},
	} {
		t.Run(c.name, func(t *testing.T) {
			kept := filepath.Join(t.TempDir(), "streams.json")
			one := func(name, sinks string) string {
				return fmt.Sprintf(`{"name":%q,"source":%q,"model":"eyes","sinks":{%s}}`, name, camera.URL, sinks)
			}
			if err := os.WriteFile(kept, fmt.Appendf(nil, `{"streams":[%s,%s]}`,
				one("door", fmt.Sprintf(`"file":%q`, c.file)), one("yard", "")), 0o600); err != nil {
				t.Fatal(err)
			}
			var files *sinks.Files
			if c.folder != "" {
				var err error
				if files, err = sinks.OpenFiles(c.folder, 1<<30); err != nil {
					t.Fatal(err)
				}
			}
			var log logged
			r := start(t, streams.Options{AllowPrivate: true, Files: files, Store: open(t, kept),
				Log: slog.New(slog.NewTextHandler(&log, nil))})
			r.until("yard", "results", func(s shown) bool { return s.Results > 0 })
			s := r.show("door")
			if s.State != "failed" || s.Error == nil || !strings.HasPrefix(s.Error.Message, "sinks.file: ") ||
				!strings.Contains(s.Error.Message, c.want) || s.Frames != 0 {
				t.Errorf("%+v, %+v", s, s.Error)
			}
			var warning string
			for l := range strings.Lines(log.String()) {
				if strings.Contains(l, "level=WARN") && strings.Contains(l, "stream=door") {
					warning += l
				}
			}
			if !strings.Contains(warning, "setting=sinks.folder") || strings.Count(warning, "\n") != 1 {
				t.Errorf("the log has %q", warning)
			}
			if code, text := r.call("GET", "/v2/streams/door/results", ""); code != 409 {
				t.Errorf("results: %d %s", code, text)
			}
			r.call("PATCH", "/v2/streams/door", `{"max_fps":2}`)
			if text, err := os.ReadFile(kept); err != nil ||
				!strings.Contains(string(text), fmt.Sprintf("%q", c.file)) {
				t.Errorf("it is not stored any more: %v %s", err, text)
			}
			r.want(200, "PATCH", "/v2/streams/door", `{"sinks":{"file":""}}`)
			r.until("door", "results", func(s shown) bool { return s.Results > 0 && s.Error == nil })
			if left, _ := filepath.Glob(filepath.Join(outside, "*")); len(left) > 0 {
				t.Errorf("outside of the folder there is %v", left)
			}
		})
	}
}

// Without a folder a request names no file.
func TestNoFilesOfRequests(t *testing.T) {
	r := start(t, streams.Options{AllowPrivate: true})
	code, text := r.call("POST", "/v2/streams",
		`{"name":"a","source":"http://127.0.0.1:9/","model":"eyes","sinks":{"file":"x"}}`)
	if code != 403 || !strings.Contains(text, "sinks.folder") {
		t.Errorf("%d %s", code, text)
	}
}
