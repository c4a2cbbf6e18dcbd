package inferenceserver_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/batching"
	"millrace/compat/inferenceserver"
	"millrace/config"
	"millrace/ingest/access"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// files is a model that takes files. The first file of the input says what the model does.
type files struct{ workers.Base }

var _ workers.FileWorker = files{}

func init() {
	workers.Register(workers.Kind{Name: "files", New: func() workers.Worker { return files{} }})
}

func (files) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{Files: true, AcceptsAnyInput: true, Ragged: true, MaxBatch: 1}, nil
}

func (files) Run(context.Context, *batching.Batch) error {
	return stream.Errorf(stream.Unsupported, "", "tasks only")
}

// RunFile implements workers.FileWorker.
func (files) RunFile(ctx context.Context, f *stream.FileRun) error {
	in, err := zip.NewReader(f.Input, f.Size)
	if err != nil {
		return stream.Errorf(stream.InvalidArgument, "", "%w", err)
	}
	switch {
	case len(in.File) == 0:
		return write(f, "empty.txt", "text/plain", []byte("no files in "+f.Name))
	case in.File[0].Name == "hang":
		<-ctx.Done()
		return context.Cause(ctx)
	case in.File[0].Name == "fail":
		return stream.Errorf(stream.InvalidArgument, "", "this input fails")
	case in.File[0].Name == "large":
		return write(f, "large.bin", "", bytes.Repeat([]byte("0123456789abcdef"), 40_000))
	}
	all, err := io.ReadAll(io.NewSectionReader(f.Input, 0, f.Size))
	if err != nil {
		return err
	}
	return write(f, "output.zip", f.Type, all)
}

func write(f *stream.FileRun, name, kind string, b []byte) error {
	w, err := f.Create(name, kind)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// rig is a running server with the routes.
type rig struct {
	*server.Server
	t    *testing.T
	data string
}

func start(t *testing.T, change func(*server.Config, *inferenceserver.Options)) *rig {
	t.Helper()
	o := &inferenceserver.Options{Routes: true}
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off, Data: t.TempDir(), Log: config.Log{Level: "error"},
		Parts: []any{o}, Models: []workers.Config{{Name: "files", Source: "files"}, {Name: "echo", Source: "identity"}}}
	if change != nil {
		change(&cfg, o)
	}
	return &rig{servertest.Start(t, cfg).Server, t, cfg.Data}
}

func (r *rig) do(method, path, key, kind string, body io.Reader) (int, string) {
	r.t.Helper()
	q, err := http.NewRequest(method, r.URL("http")+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	if kind != "" {
		q.Header.Set("Content-Type", kind)
	}
	if key != "" {
		q.Header.Set("Authorization", "Bearer "+key)
	}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return a.StatusCode, string(b)
}

// zipped returns a zip file with files of these names, which are the contents, too.
func zipped(t *testing.T, names ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range names {
		w, err := z.Create(name)
		if err == nil {
			_, err = io.WriteString(w, name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// unzipped returns the files of a zip file as NAME=TEXT.
func unzipped(t *testing.T, text string) (all []string) {
	t.Helper()
	z, err := zip.NewReader(strings.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatalf("%v: %.100q", err, text)
	}
	for _, f := range z.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(in)
		if err != nil {
			t.Error(err)
		}
		all = append(all, f.Name+"="+string(b))
	}
	return all
}

// form returns a form with files: names of fields and texts.
func form(t *testing.T, parts ...string) (kind string, body io.Reader) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := 0; i < len(parts); i += 2 {
		p, err := w.CreateFormFile(parts[i], "name")
		if err == nil {
			_, err = io.WriteString(p, parts[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), &b
}

// submit submits a zip file and returns the uid.
func (r *rig) submit(query, key string, parts ...string) (uid string) {
	r.t.Helper()
	kind, body := form(r.t, parts...)
	status, text := r.do("POST", "/api/tasks/?"+query, key, kind, body)
	if err := json.Unmarshal([]byte(text), &uid); status != http.StatusOK || err != nil {
		r.t.Fatalf("%s: %d %s", query, status, text)
	}
	return uid
}

// ended polls a task until the task has ended.
func (r *rig) ended(uid, key string) (status int, text string) {
	r.t.Helper()
	for {
		status, text = r.do("GET", "/api/tasks/"+uid, key, "", nil)
		if status != 551 {
			return status, text
		}
		r.do("GET", "/v2/tasks/"+uid+"?wait=1m", key, "", nil)
	}
}

// TestStatuses: each state of a task has its status, and a result is a zip file, whatever the model writes.
func TestStatuses(t *testing.T) {
	r := start(t, nil)
	for _, query := range []string{"human_readable_id=files", "model_human_readable_id=files",
		"human_readable_id=files&model_human_readable_id=files"} {
		uid := r.submit(query, "", "zip_file", zipped(t, "a", "b/c"))
		status, text := r.ended(uid, "")
		if got := unzipped(t, text); status != 200 || fmt.Sprint(got) != "[a=a b/c=b/c]" {
			t.Errorf("%s: %d %v", query, status, got)
		}
		if status, again := r.do("GET", "/api/tasks/outputs/"+uid, "", "", nil); status != 200 || again != text {
			t.Errorf("outputs: %d, %d bytes", status, len(again))
		}
	}
	_, text := r.ended(r.submit("human_readable_id=files", "", "zip_file", zipped(t, "large")), "")
	if got := unzipped(t, text); len(got) != 1 || got[0] != "large.bin="+strings.Repeat("0123456789abcdef", 40_000) {
		t.Errorf("a result that is no zip file: %d files", len(got))
	}
	_, text = r.ended(r.submit("human_readable_id=files", "", "zip_file", zipped(t)), "")
	if got := unzipped(t, text); fmt.Sprint(got) != "[empty.txt=no files in input.zip]" {
		t.Errorf("an empty zip file: %v", got)
	}
	status, text := r.do("POST", "/api/tasks/?human_readable_id=files", "", "", nil)
	if status != 200 {
		t.Errorf("without a body: %d %s", status, text)
	}
	_, text = r.ended(strings.Trim(text, `"`), "")
	if got := unzipped(t, text); fmt.Sprint(got) != "[empty.txt=no files in input.zip]" {
		t.Errorf("without a body: %v", got)
	}

	uid := r.submit("human_readable_id=files", "", "zip_file", zipped(t, "fail"))
	if status, text := r.ended(uid, ""); status != 552 || !strings.Contains(text, "this input fails") {
		t.Errorf("failed: %d %s", status, text)
	}
	var many []string // so that the result is a file
	for i := range 200 {
		many = append(many, fmt.Sprintf("%040d", i))
	}
	uid = r.submit("human_readable_id=files", "", "zip_file", zipped(t, many...))
	r.ended(uid, "")
	results, err := filepath.Glob(filepath.Join(r.data, "files", "*", uid, "result-*"))
	if err != nil || len(results) != 1 {
		t.Fatalf("%v %v", results, err)
	}
	if err := os.Remove(results[0]); err != nil {
		t.Fatal(err)
	}
	if status, text := r.do("GET", "/api/tasks/"+uid, "", "", nil); status != 553 {
		t.Errorf("without a result: %d %s", status, text)
	}
	uid = r.submit("human_readable_id=files", "", "zip_file", zipped(t, "hang"))
	if status, text := r.do("GET", "/api/tasks/"+uid, "", "", nil); status != 551 {
		t.Errorf("pending: %d %s", status, text)
	}
	r.do("POST", "/v2/tasks/"+uid+"/cancel", "", "", nil)
	if status, text := r.ended(uid, ""); status != 552 || !strings.Contains(text, "cancelled") {
		t.Errorf("cancelled: %d %s", status, text)
	}
	if status, text := r.do("DELETE", "/api/tasks/"+uid, "", "", nil); status != 200 ||
		text != `{"uid":"`+uid+`","is_deleted":true}` {
		t.Errorf("delete: %d %s", status, text)
	}
	for _, path := range []string{uid, "outputs/" + uid, "nothing", strings.Repeat("0", 32)} {
		if status, text := r.do("GET", "/api/tasks/"+path, "", "", nil); status != 554 {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	kind, body := form(t, "zip_file", zipped(t, "a"))
	status, text = r.do("POST", "/api/tasks/?human_readable_id=other", "", kind, body)
	if status != 550 || !strings.Contains(text, "human_readable_id") {
		t.Errorf("an unknown model: %d %s", status, text)
	}
}

// TestBadInput: wrong requests name what is wrong, and leave no task.
func TestBadInput(t *testing.T) {
	r := start(t, func(c *server.Config, _ *inferenceserver.Options) { c.Tasks.MaxInput = 4096 })
	ok := zipped(t, "a")
	for _, c := range []struct {
		query  string
		parts  []string
		status int
		want   string
	}{
		{"", []string{"zip_file", ok}, 400, "human_readable_id: is missing"},
		{"human_readable_id=files&human_readable_id=files", []string{"zip_file", ok}, 400, "in the query twice"},
		{"human_readable_id=files&model_human_readable_id=echo", []string{"zip_file", ok}, 400,
			"model_human_readable_id: "},
		{"human_readable_id=files&uid=1", []string{"zip_file", ok}, 400, "uid: is no option"},
		{"human_readable_id=" + strings.Repeat("a", 2049), []string{"zip_file", ok}, 400, "longer than"},
		{"human_readable_id=files", nil, 400, "zip_file: is missing"},
		{"human_readable_id=files", []string{"tar_file", ok}, 400, "tar_file: is no field"},
		{"human_readable_id=files", []string{"zip_file", ok, "more", "b"}, 400, "more: is no field"},
		{"human_readable_id=files", []string{"zip_file", ok, "zip_file", ok}, 400, "zip_file: is in the form twice"},
		{"human_readable_id=files", []string{"zip_file", "text"}, 400, "zip_file: is no zip file"},
		{"human_readable_id=files", []string{"zip_file", ""}, 400, "zip_file: is no zip file"},
		{"human_readable_id=files", []string{"zip_file", ok + strings.Repeat("a", 4096)}, 413, "tasks.max_input"},
	} {
		kind, body := form(t, c.parts...)
		status, text := r.do("POST", "/api/tasks/?"+c.query, "", kind, body)
		if status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s %.60q: %d %s, want %d %s", c.query, c.parts, status, text, c.status, c.want)
		}
	}
	kind, body := form(t, "zip_file", ok)
	whole, _ := io.ReadAll(body)
	for name, c := range map[string]struct {
		kind string
		body []byte
	}{
		"no form": {"application/zip", whole}, "no boundary": {"multipart/form-data", whole},
		"another boundary": {"multipart/form-data; boundary=x", whole}, "short": {kind, whole[:len(whole)-20]},
		"bad header": {kind, bytes.Replace(whole, []byte("Content-Type: "), []byte("Content-Type\n "), 1)},
	} {
		status, text := r.do("POST", "/api/tasks/?human_readable_id=files", "", c.kind, bytes.NewReader(c.body))
		if status != 400 && status != 415 {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	for _, path := range []string{"/api/tasks/" + strings.Repeat("0", 32) + "?x=1", "/api/tasks/", "/api/tasks"} {
		if status, text := r.do("GET", path, "", "", nil); status != 400 && status != 404 && status != 405 {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if _, text := r.do("GET", "/v2/tasks", "", "", nil); text != `{"tasks":[]}` {
		t.Errorf("tasks: %s", text)
	}
	if left, _ := filepath.Glob(filepath.Join(r.data, "files", "*", "*", "*")); len(left) > 0 {
		t.Errorf("files: %v", left)
	}
}

// TestOff: without the setting, the routes do not exist. The setting needs a data folder.
func TestOff(t *testing.T) {
	r := start(t, func(_ *server.Config, o *inferenceserver.Options) { o.Routes = false })
	kind, body := form(t, "zip_file", zipped(t, "a"))
	if status, text := r.do("POST", "/api/tasks/?human_readable_id=files", "", kind, body); status != 404 {
		t.Errorf("%d %s", status, text)
	}
	if paths, _ := r.OpenAPI()["paths"].(map[string]any); paths["/api/tasks/"] != nil || len(paths) == 0 {
		t.Error("the OpenAPI document has the routes")
	}
	_, err := server.New(server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off,
		Parts: []any{&inferenceserver.Options{Routes: true}}})
	if err == nil || !strings.Contains(err.Error(), "inference_server.routes: ") {
		t.Errorf("without a data folder: %v", err)
	}
}

// keys makes a file of keys, and returns the key of each name.
func keys(t *testing.T, grants map[string]access.Grant) (file string, key map[string]string) {
	t.Helper()
	file, key = filepath.Join(t.TempDir(), "keys.yaml"), map[string]string{}
	var all []access.Key
	for name, grant := range grants {
		entry, text := access.NewKey(name, grant)
		all, key[name] = append(all, entry), text
	}
	if err := access.WriteKeys(file, all); err != nil {
		t.Fatal(err)
	}
	return file, key
}

// TestAccess: the routes need the role infer and the model, and a client does not see the tasks of another client.
func TestAccess(t *testing.T) {
	file, key := keys(t, map[string]access.Grant{
		"one": {Roles: []string{"infer"}, Models: []string{"files"}}, "two": {Roles: []string{"infer"}},
		"watch": {Roles: []string{"watch"}}})
	r := start(t, func(c *server.Config, _ *inferenceserver.Options) { c.Auth.Keys = file })
	uid := r.submit("human_readable_id=files", key["one"], "zip_file", zipped(t, "a"))
	if status, text := r.ended(uid, key["one"]); status != 200 {
		t.Errorf("the own task: %d %s", status, text)
	}
	for _, c := range []struct {
		method, path, key string
		status            int
	}{
		{"POST", "?human_readable_id=files", "", 401},
		{"POST", "?human_readable_id=files", key["watch"], 403},
		{"POST", "?human_readable_id=echo", key["one"], 403},
		{"POST", "?human_readable_id=unknown", key["one"], 403},
		{"POST", "?human_readable_id=unknown", key["two"], 550},
		{"GET", uid, "", 401},
		{"GET", uid, key["watch"], 403},
		{"GET", uid, key["two"], 554},
		{"GET", "outputs/" + uid, key["two"], 554},
		{"DELETE", uid, key["two"], 554},
		{"DELETE", uid, key["one"], 200},
	} {
		kind, body := form(t, "zip_file", zipped(t, "a"))
		if status, text := r.do(c.method, "/api/tasks/"+c.path, c.key, kind, body); status != c.status {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, status, text, c.status)
		}
	}
}
