package tasks_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/ingest/access"
	"millrace/server"
	"millrace/tasks"
)

// metadata returns the header Upload-Metadata.
func metadata(pairs ...string) string {
	var all []string
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, pairs[i]+" "+base64.StdEncoding.EncodeToString([]byte(pairs[i+1])))
	}
	return strings.Join(all, ",")
}

// tus sends a request about an upload; headers are pairs.
func (r *rig) tus(method, path string, credentials map[string]string, body io.Reader,
	headers ...string) (*http.Response, string) {
	r.t.Helper()
	h := map[string]string{"Tus-Resumable": "1.0.0"}
	maps.Copy(h, credentials)
	for i := 0; i < len(headers); i += 2 {
		h[headers[i]] = headers[i+1]
	}
	return r.do(method, path, h, body)
}

// create begins an upload, and returns the path.
func (r *rig) create(size int, credentials map[string]string, pairs ...string) string {
	r.t.Helper()
	a, text := r.tus("POST", "/v2/uploads", credentials, nil, "Upload-Length", strconv.Itoa(size), "Upload-Metadata",
		metadata(pairs...))
	if a.StatusCode != 201 || a.Header.Get("Tus-Resumable") != "1.0.0" {
		r.t.Fatalf("create: %d %s %v", a.StatusCode, text, a.Header)
	}
	at, err := a.Request.URL.Parse(a.Header.Get("Location"))
	if err != nil {
		r.t.Fatal(err)
	}
	return at.Path
}

// patch sends a part of an upload.
func (r *rig) patch(path string, at int, part string, credentials map[string]string) (*http.Response, string) {
	r.t.Helper()
	return r.tus("PATCH", path, credentials, strings.NewReader(part), "Upload-Offset", strconv.Itoa(at), "Content-Type",
		"application/offset+octet-stream")
}

// offset returns the bytes of an upload that have arrived.
func (r *rig) offset(path string) int {
	r.t.Helper()
	a, _ := r.tus("HEAD", path, nil, nil)
	n, err := strconv.Atoi(a.Header.Get("Upload-Offset"))
	if err != nil || a.StatusCode != 200 || a.Header.Get("Cache-Control") != "no-store" {
		r.t.Fatalf("HEAD: %d %v", a.StatusCode, a.Header)
	}
	return n
}

// sumOf returns the SHA-256 of a text.
func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// TestUpload: an upload in parts becomes the task of its options, with the id of the upload, also over restarts; the
// last part may be repeated.
func TestUpload(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, nil)
	path := r.create(len(jsonBody), nil, "model", "echo", "filename", "a.json", "filetype", "application/json",
		"priority", "7", "sha256", sumOf(jsonBody))
	if a, text := r.patch(path, 0, jsonBody[:20], nil); a.StatusCode != 204 || a.Header.Get("Upload-Offset") != "20" ||
		a.Header.Get("Upload-Expires") == "" {
		t.Fatalf("the first part: %d %s %v", a.StatusCode, text, a.Header)
	}
	r.end()
	r = start(t, dir, nil)
	if n := r.offset(path); n != 20 {
		t.Fatalf("after a restart: %d bytes, want 20", n)
	}
	for range 2 { // the answer of the first request may be lost
		a, text := r.patch(path, 20, jsonBody[20:], nil)
		if a.StatusCode != 204 && a.StatusCode != 409 || a.Header.Get("Upload-Offset") != strconv.Itoa(len(jsonBody)) {
			t.Fatalf("the last part: %d %s %v", a.StatusCode, text, a.Header)
		}
	}
	if n := r.offset(path); n != len(jsonBody) {
		t.Errorf("of the complete upload: %d bytes, want %d", n, len(jsonBody))
	}
	task := r.wait(filepath.Base(path), nil)
	if task.State != tasks.Finished || task.Input.Name != "a.json" || task.Input.SHA256 != sumOf(jsonBody) ||
		task.Priority != 7 {
		t.Errorf("the task: %+v, error %+v", task, task.Error)
	}
	if a, _ := r.tus("DELETE", path, nil, nil); a.StatusCode != 409 {
		t.Errorf("the removal of a complete upload: %d", a.StatusCode)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "uploads")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

// TestUploadRefusals: errors name the header or the option.
func TestUploadRefusals(t *testing.T) {
	r := start(t, t.TempDir(), func(c *server.Config) { c.Tasks.MaxInput, c.Tasks.Consume = 1000, server.Off })
	for _, c := range []struct {
		status  int
		words   string
		headers []string
	}{
		{412, "Tus-Resumable", []string{"Tus-Resumable", "0.2.2"}},
		{400, "Upload-Length", nil},
		{400, "Upload-Length", []string{"Upload-Length", "-1"}},
		{413, "tasks.max_input", []string{"Upload-Length", "1001"}},
		{400, "Upload-Defer-Length", []string{"Upload-Defer-Length", "1"}},
		{400, "model", []string{"Upload-Length", "3"}},
		{400, "Upload-Metadata", []string{"Upload-Length", "3", "Upload-Metadata", "model ?"}},
		{400, "priority", []string{"Upload-Length", "3", "Upload-Metadata", metadata("model", "a", "priority", "x")}},
		{400, "sha256", []string{"Upload-Length", "3", "Upload-Metadata", metadata("model", "a", "sha256", "12")}},
	} {
		if a, text := r.tus("POST", "/v2/uploads", nil, nil, c.headers...); a.StatusCode != c.status ||
			!strings.Contains(text, c.words) {
			t.Errorf("%v: %d %s, want %d with %s", c.headers, a.StatusCode, text, c.status, c.words)
		}
	}
	if a, _ := r.tus("OPTIONS", "/v2/uploads", nil, nil); a.StatusCode != 204 || a.Header.Get("Tus-Max-Size") !=
		"1000" || a.Header.Get("Tus-Extension") != "creation,expiration,termination" {
		t.Errorf("OPTIONS: %d %v", a.StatusCode, a.Header)
	}
	path := r.create(3, nil, "model", "echo")
	if a, text := r.patch(path, 1, "x", nil); a.StatusCode != 409 || !strings.Contains(text, "Upload-Offset") ||
		a.Header.Get("Upload-Offset") != "0" {
		t.Errorf("another offset: %d %s", a.StatusCode, text)
	}
	if a, text := r.patch(path, 0, "xxxx", nil); a.StatusCode != 413 || !strings.Contains(text, "Upload-Length") {
		t.Errorf("too many bytes: %d %s", a.StatusCode, text)
	}
	if a, text := r.tus("PATCH", path, nil, strings.NewReader("x"), "Upload-Offset", "0"); a.StatusCode != 415 ||
		!strings.Contains(text, "Content-Type") {
		t.Errorf("another media type: %d %s", a.StatusCode, text)
	}
	if a, text := r.tus("DELETE", path, nil, nil); a.StatusCode != 204 {
		t.Errorf("the removal: %d %s", a.StatusCode, text)
	}
	if a, text := r.patch(path, 0, "x", nil); a.StatusCode != 404 || !strings.Contains(text, "tasks.upload_expiry") {
		t.Errorf("after the removal: %d %s", a.StatusCode, text)
	}
	path = r.create(3, nil, "model", "echo", "sha256", sumOf("abd"))
	if a, text := r.patch(path, 0, "abc", nil); a.StatusCode != 400 || !strings.Contains(text, "sha256") {
		t.Errorf("other bytes than announced: %d %s", a.StatusCode, text)
	}
	if a, _ := r.tus("HEAD", path, nil, nil); a.StatusCode != 404 {
		t.Errorf("after other bytes than announced: %d", a.StatusCode)
	}
}

// TestUploadBroken: a connection that is cut, and one that is silent, leave the bytes that have arrived. The next
// request about the upload ends the silent request.
func TestUploadBroken(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	input := `{"inputs":[{"name":"x","datatype":"BYTES","shape":[1],"data":["` + strings.Repeat("a", 300_000) + `"]}]}`
	path := r.create(len(input), nil, "model", "echo")
	send := func(at, n int) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.URL("http"), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		fmt.Fprintf(conn, "PATCH %s HTTP/1.1\r\nHost: localhost\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: %d\r\n"+
			"Content-Type: application/offset+octet-stream\r\nContent-Length: %d\r\n\r\n%s", path, at, len(input)-at,
			input[at:at+n])
		return conn
	}
	arrived := func(n int) { // the bytes pass through the sockets
		t.Helper()
		part := filepath.Join(r.dir, "uploads", filepath.Base(path)+".part")
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if info, err := os.Stat(part); err == nil && info.Size() >= int64(n) {
				return
			} else if time.Now().After(end) {
				t.Fatalf("%d bytes have not arrived: %v", n, err)
			}
		}
	}
	cut := send(0, 100_000)
	arrived(100_000)
	_ = cut.Close()
	if n := r.offset(path); n != 100_000 {
		t.Fatalf("%d bytes after the cut, want 100000", n)
	}
	silent := send(100_000, 50_000)
	arrived(150_000)
	if n := r.offset(path); n != 150_000 {
		t.Fatalf("%d bytes of the silent request, want 150000", n)
	}
	if a, err := http.ReadResponse(bufio.NewReader(silent), nil); err == nil && a.StatusCode < 400 {
		t.Errorf("the silent request: %d", a.StatusCode)
	}
	if a, text := r.patch(path, 150_000, input[150_000:], nil); a.StatusCode != 204 {
		t.Fatalf("the rest: %d %s", a.StatusCode, text)
	}
	if task := r.wait(filepath.Base(path), nil); task.State != tasks.Finished || task.Input.SHA256 != sumOf(input) {
		t.Errorf("the task: %+v, error %+v", task, task.Error)
	}
}

// TestUploadOwner: only the client that began an upload may continue, see and remove the upload.
func TestUploadOwner(t *testing.T) {
	file, header := withKeys(t, map[string]access.Grant{
		"one": {Roles: []string{"infer"}}, "two": {Roles: []string{"infer"}},
		"boss": {Roles: []string{"infer", "manage"}}, "watch": {Roles: []string{"watch"}},
	})
	dir := t.TempDir()
	r := start(t, dir, func(c *server.Config) { c.Auth.Keys = file })
	path := r.create(len(jsonBody), header["one"], "model", "echo")
	for who, status := range map[string]int{"two": 404, "boss": 404, "watch": 403, "": 401} {
		for _, method := range []string{"HEAD", "GET", "PATCH", "DELETE"} {
			if a, _ := r.tus(method, path, header[who], nil, "Upload-Offset", "0", "Content-Type",
				"application/offset+octet-stream"); a.StatusCode != status {
				t.Errorf("%s of %q: %d, want %d", method, who, a.StatusCode, status)
			}
		}
	}
	if a, text := r.patch(path, 0, jsonBody, header["one"]); a.StatusCode != 204 {
		t.Errorf("the owner: %d %s", a.StatusCode, text)
	}
	r.end()
	r = start(t, dir, nil) // without credentials, an upload of nobody
	open := r.create(len(jsonBody), nil, "model", "echo")
	r.end()
	r = start(t, dir, func(c *server.Config) { c.Auth.Keys = file })
	if a, _ := r.patch(open, 0, jsonBody, header["one"]); a.StatusCode != 404 {
		t.Errorf("an upload without an owner: %d, want 404", a.StatusCode)
	}
}

// TestUploadQuotas: unfinished uploads count as tasks that wait, and their bytes count, until the upload is removed.
func TestUploadQuotas(t *testing.T) {
	file, header := withKeys(t, map[string]access.Grant{
		"few":   {Roles: []string{"infer"}, Quotas: map[string]float64{"tasks": 1}},
		"small": {Roles: []string{"infer"}, Quotas: map[string]float64{"task_bytes": 1 << 17}},
	})
	r := start(t, t.TempDir(), func(c *server.Config) {
		c.Auth.Keys, c.Tasks.Consume, c.Tasks.MaxBytes = file, server.Off, 1<<20
	})
	create := func(who string) (*http.Response, string) {
		return r.tus("POST", "/v2/uploads?model=echo", header[who], nil, "Upload-Length", "500000")
	}
	path := r.create(3, header["few"], "model", "echo")
	if a, text := create("few"); a.StatusCode != 429 || !strings.Contains(text, "quotas.tasks") {
		t.Errorf("a second upload: %d %s", a.StatusCode, text)
	}
	if a, text := r.do("POST", "/v2/tasks?model=echo", header["few"], strings.NewReader(jsonBody)); a.StatusCode !=
		429 {
		t.Errorf("a task beside the upload: %d %s", a.StatusCode, text)
	}
	r.tus("DELETE", path, header["few"], nil)
	r.submit("model=echo", header["few"], jsonBody)

	path = r.create(500_000, header["small"], "model", "echo")
	if a, text := r.patch(path, 0, strings.Repeat("x", 500_000), header["small"]); a.StatusCode != 429 ||
		!strings.Contains(text, "quotas.task_bytes") {
		t.Errorf("bytes above the quota: %d %s", a.StatusCode, text)
	}
	if a, text := create("small"); a.StatusCode != 429 || !strings.Contains(text, "quotas.task_bytes") {
		t.Errorf("an upload above the quota: %d %s", a.StatusCode, text)
	}
	_, before := r.do("GET", "/metrics", header["small"], nil)
	r.tus("DELETE", path, header["small"], nil)
	if a, text := create("small"); a.StatusCode != 201 {
		t.Errorf("after the removal: %d %s\n%s", a.StatusCode, text, before)
	}
}

// TestUploadExpiry: an upload without a byte for tasks.upload_expiry does not exist, also after a restart, and its
// files are removed.
func TestUploadExpiry(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, func(c *server.Config) { c.Tasks.UploadExpiry = time.Hour })
	old, young := r.create(3, nil, "model", "echo"), r.create(3, nil, "model", "echo")
	later := r.create(3, nil, "model", "echo")
	age := func(path string) {
		t.Helper()
		at := time.Now().Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(dir, "uploads", filepath.Base(path)+".part"), at, at); err != nil {
			t.Fatal(err)
		}
	}
	age(old)
	if a, text := r.patch(old, 0, "abc", nil); a.StatusCode != 404 {
		t.Errorf("an expired upload: %d %s", a.StatusCode, text)
	}
	age(later)
	r.end()
	r = start(t, dir, func(c *server.Config) { c.Tasks.UploadExpiry = time.Hour })
	if left, err := os.ReadDir(filepath.Join(dir, "uploads")); err != nil || len(left) != 2 {
		t.Errorf("files of one upload are to be left: %v, %v", left, err)
	}
	if n := r.offset(young); n != 0 {
		t.Errorf("the other upload has %d bytes", n)
	}
}

// TestUploadKey: an upload with the idempotency key of an unfinished upload, or of a task, is the earlier one.
func TestUploadKey(t *testing.T) {
	r := start(t, t.TempDir(), func(c *server.Config) { c.Tasks.Consume = server.Off })
	begin := func() (int, string) {
		a, text := r.tus("POST", "/v2/uploads?model=echo", nil, nil, "Upload-Length", "3", "Idempotency-Key", "k")
		return a.StatusCode, a.Header.Get("Location") + " " + a.Header.Get("Upload-Offset") + text
	}
	status, first := begin()
	path := "/v2/uploads/" + strings.Split(strings.Fields(first)[0], "/")[len(strings.Split(strings.Fields(first)[0],
		"/"))-1]
	r.patch(path, 0, "ab", nil)
	if again, second := begin(); status != 201 || again != 200 || !strings.Contains(second, filepath.Base(path)+" 2") {
		t.Errorf("%d %s, then %d %s", status, first, again, second)
	}
	r.patch(path, 2, "c", nil)
	if again, third := begin(); again != 200 || !strings.Contains(third, filepath.Base(path)+" 3") {
		t.Errorf("after the end: %d %s", again, third)
	}
	a, text := r.do("POST", "/v2/tasks?model=echo", map[string]string{"Idempotency-Key": "k"},
		bytes.NewReader([]byte("abc")))
	if a.StatusCode != 200 || r.task(text).ID != filepath.Base(path) {
		t.Errorf("a submission with the key: %d %s", a.StatusCode, text)
	}
	if status, text := begin(); status != 200 {
		t.Errorf("%d %s", status, text)
	}
}

// TestUploadEmpty: an upload without bytes is a task at once.
func TestUploadEmpty(t *testing.T) {
	r := start(t, t.TempDir(), func(c *server.Config) { c.Tasks.Consume = server.Off })
	path := r.create(0, nil, "model", "echo")
	if a, text := r.do("GET", "/v2/tasks/"+filepath.Base(path), nil, nil); a.StatusCode != 200 ||
		r.task(text).State != tasks.Queued {
		t.Errorf("%d %s", a.StatusCode, text)
	}
}
