package service

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/config"
	"millrace/internal/gittest"
	"millrace/internal/onnxfile"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/workers"
)

// mirror is a model of one input with so many numbers.
func mirrorOf(numbers int) string {
	return string(onnxfile.Identity(onnxfile.Float32, "N", numbers))
}

// wide reports whether a model takes so many numbers.
func wide(s *servertest.Running, model, numbers string) bool {
	return strings.Contains(s.Ask("GET", "/v2/models/"+model, "").Text, `"shape":[-1,`+numbers+`]`)
}

func modelOf(name, source string, poll time.Duration) workers.Config {
	return workers.Config{Name: name, Source: source, Poll: poll}
}

// A model of a repository is served; a new state is found by polling, and loaded; a state that cannot be loaded, and a
// repository that cannot be reached, leave the state before in service.
func TestModelOfARepository(t *testing.T) {
	r := gittest.New(t)
	r.Commit(map[string]string{"a/m.onnx": mirrorOf(4), "README": "x"})
	cache := filepath.Join(t.TempDir(), "cache")
	s := servertest.Start(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		ModelSources: config.ModelSources{Cache: cache},
		Models:       []workers.Config{modelOf("m", "git+file://"+r.Dir+"#a/m.onnx", 20*time.Millisecond)}})
	if !wide(s, "m", "4") {
		t.Fatal(s.Ask("GET", "/v2/models/m", "").Text)
	}
	lookups := func(outcome string) bool {
		return strings.Contains(s.Ask("GET", "/metrics", "").Text,
			"\nmillrace_model_source_lookups_total{outcome=\""+outcome+"\"} ") &&
			!strings.Contains(s.Ask("GET", "/metrics", "").Text,
				"\nmillrace_model_source_lookups_total{outcome=\""+outcome+"\"} 0\n")
	}
	r.Commit(map[string]string{"a/m.onnx": mirrorOf(5)})
	servertest.Until(t, func() bool { return wide(s, "m", "5") })
	if got := s.Ask("POST", "/v2/models/m/infer", `{"inputs":[{"name":"x","datatype":"FP32","shape":[1,5],`+
		`"data":[1,2,3,4,5]}]}`); !strings.Contains(got.Text, `"data":[1,2,3,4,5]`) {
		t.Error(got)
	}
	index := func() string { return s.Ask("POST", "/v2/repository/index", "").Text }
	r.Commit(map[string]string{"a/m.onnx": "no model"})
	servertest.Until(t, func() bool { return strings.Contains(index(), "Protobuf parsing failed") })
	servertest.Until(t, func() bool { // requests load the state before
		return s.Ask("POST", "/v2/repository/models/m/load", "").StatusCode == http.StatusOK
	})
	if !wide(s, "m", "5") {
		t.Error(s.Ask("GET", "/v2/models/m", "").Text)
	}
	r.Git("reset", "-q", "--hard", "HEAD~1")
	servertest.Until(t, func() bool { return !strings.Contains(index(), "Protobuf parsing failed") })
	r.Commit(map[string]string{"a/m.onnx": mirrorOf(6)})
	servertest.Until(t, func() bool { return wide(s, "m", "6") })
	if !lookups("fetched") || !lookups("current") {
		t.Error(s.Ask("GET", "/metrics", "").Text)
	}
	for _, names := range [][2]string{{r.Dir, r.Dir + ".away"}, {r.Dir + ".away", r.Dir}} {
		if err := os.Rename(names[0], names[1]); err != nil {
			t.Fatal(err)
		}
		away := names[0] == r.Dir
		servertest.Until(t, func() bool { return strings.Contains(index(), "not a Git repository") == away })
	}
	if !lookups("failed") || !wide(s, "m", "6") {
		t.Error(s.Ask("GET", "/v2/models/m", "").Text)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(cache, "use")); err != nil || len(left) > 0 {
		t.Errorf("%v are left in the cache, %v", left, err)
	}
}

// The folders of a repository with an address follow the repository: models are added, changed and removed, and others
// are not loaded again.
func TestRepositoryWithAnAddress(t *testing.T) {
	r := gittest.New(t)
	r.Commit(map[string]string{"models/a/1/model.onnx": mirrorOf(4), "models/b/1/model.onnx": mirrorOf(4)})
	s := servertest.Start(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		ModelSources: config.ModelSources{Cache: filepath.Join(t.TempDir(), "cache")},
		Repository: config.Repository{Dir: "git+file://" + r.Dir + "#models", Mode: config.LoadPoll,
			Poll: 20 * time.Millisecond}})
	if !wide(s, "a", "4") || !wide(s, "b", "4") {
		t.Fatal(s.Ask("POST", "/v2/repository/index", ""))
	}
	before, err := s.Models().Group("b", "")
	if err != nil {
		t.Fatal(err)
	}
	r.Commit(map[string]string{"models/a/1/model.onnx": mirrorOf(5), "models/c/1/model.onnx": mirrorOf(7)})
	servertest.Until(t, func() bool { return wide(s, "a", "5") && wide(s, "c", "7") })
	if after, err := s.Models().Group("b", ""); err != nil || after != before {
		t.Errorf("an unchanged model was loaded again, %v", err)
	}
	r.Git("rm", "-q", "-r", "models/c")
	r.Commit(nil)
	servertest.Until(t, func() bool { return s.Ask("GET", "/v2/models/c", "").StatusCode == http.StatusNotFound })
}

// Without its source, a server starts from the cache. Without source and cache the start fails, and the error names the
// model. Offline, nothing is asked of the source.
func TestSourceIsAway(t *testing.T) {
	r := gittest.New(t)
	r.Commit(map[string]string{"m.onnx": mirrorOf(4)})
	asked := 0
	git := gittest.HTTP(t, filepath.Dir(r.Dir), "")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked++
		git.ServeHTTP(w, req)
	}))
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer web.Close()
	address := "git+" + web.URL + "/app#m.onnx"
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: "off", Models: []workers.Config{modelOf("m", address, 0)},
		ModelSources: config.ModelSources{Cache: filepath.Join(t.TempDir(), "cache")}}
	if err := servertest.Start(t, cfg).Stop(); err != nil {
		t.Fatal(err)
	}
	offline := cfg
	offline.ModelSources.Offline = true
	before := asked
	if s := servertest.Start(t, offline); !wide(s, "m", "4") || asked != before {
		t.Errorf("%d requests while offline", asked-before)
	}
	web.Close()
	logged := filepath.Join(t.TempDir(), "log")
	cfg.Log.File = logged
	if s := servertest.Start(t, cfg); !wide(s, "m", "4") {
		t.Error(s.Ask("GET", "/v2/models/m", "").Text)
	}
	if text, err := os.ReadFile(logged); err != nil || !strings.Contains(string(text), "the state of the cache is served") {
		t.Errorf("%s, %v", text, err)
	}
	for _, c := range []struct {
		with server.Config
		want string
	}{{cfg, "refused"}, {offline, "is not in the cache"}} {
		c.with.ModelSources.Cache = filepath.Join(t.TempDir(), "cache")
		s, err := server.New(c.with)
		if err == nil {
			err = s.Run(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "models[0].source") {
			t.Errorf("%v, want %q", err, c.want)
		}
		left, readErr := os.ReadDir(filepath.Join(c.with.ModelSources.Cache, "use"))
		if readErr != nil || len(left) > 0 {
			t.Errorf("%v, %v", left, readErr)
		}
	}
}

// A reload fetches a changed address; when the fetch fails, the model before goes on.
func TestReloadOfAnAddress(t *testing.T) {
	r := gittest.New(t)
	r.Commit(map[string]string{"a.onnx": mirrorOf(4), "b.onnx": mirrorOf(5)})
	base := "git+file://" + r.Dir
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: "off", Models: []workers.Config{modelOf("m", base+"#a.onnx", 0)},
		ModelSources: config.ModelSources{Cache: filepath.Join(t.TempDir(), "cache")}}
	s := servertest.Start(t, cfg)
	for _, c := range []struct{ inside, wide, fails string }{{"#b.onnx", "5", ""},
		{"#absent.onnx", "5", "has a.onnx, b.onnx"}, {"@none#a.onnx", "5", "no branch"}, {"#a.onnx", "4", ""}} {
		cfg.Models = []workers.Config{modelOf("m", base+c.inside, 0)}
		err := s.Reload(t.Context(), cfg)
		if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) || !wide(s, "m", c.wide) {
			t.Errorf("%s: %v, %s", c.inside, err, s.Ask("GET", "/v2/models/m", "").Text)
		}
	}
}

// No request names an address as the source of a model: the calls that load models have no such parameter, and a server
// with addresses in the configuration asks nothing for them.
func TestRequestsNameNoAddresses(t *testing.T) {
	asked := errors.New("nothing was asked")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = errors.New("a request of a client has led to " + r.URL.String())
		http.NotFound(w, r)
	}))
	defer web.Close()
	r := gittest.New(t)
	r.Commit(map[string]string{"m.onnx": mirrorOf(4)})
	s := servertest.Start(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "off",
		Sources:      config.Sources{AllowPrivate: true},
		ModelSources: config.ModelSources{Cache: filepath.Join(t.TempDir(), "cache"), AllowPrivate: true},
		Models:       []workers.Config{modelOf("m", "git+file://"+r.Dir+"#m.onnx", 0)}})
	for _, path := range []string{"/v2/repository/models/m/load", "/v2/workers/m/load"} {
		if got := s.Ask("POST", path, `{"parameters":{}}`); got.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v", path, got)
		}
	}
	const onlyConfigured = "source: can only be set in the server's configuration"
	sum := strings.Repeat("0123456789abcdef", 4)
	for _, address := range []string{"git+" + web.URL + "/app#m.onnx", web.URL + "/m.onnx#sha256=" + sum,
		"s3://bucket/m.onnx", "oci://" + strings.TrimPrefix(web.URL, "http://") + "/m:v1#m.onnx",
		"git+file://" + r.Dir + "#m.onnx"} {
		for _, name := range []string{"m", "onnx", "python", "new"} {
			for _, parameters := range []string{`"source":"` + address + `"`, `"swap":true,"source":"` + address + `"`,
				`"model_repository":"` + address + `"`, `"poll":"1s"`, `"kind":"` + address + `"`,
				`"config":"{\"backend\":\"` + address + `\"}"`,
				`"config":"{\"default_model_filename\":\"` + address + `\"}"`,
				`"config":"{\"parameters\":{\"source\":{\"string_value\":\"` + address + `\"}}}","file:1/model.onnx":"AAAA"`} {
				for _, path := range []string{"/v2/repository/models/" + name + "/load",
					"/v2/workers/" + name + "/load"} {
					got := s.Ask("POST", path, `{"parameters":{`+parameters+`}}`)
					ofSource := strings.HasPrefix(parameters, `"source"`) && name != "new"
					if got.StatusCode < 400 || ofSource && !strings.Contains(got.Text, onlyConfigured) {
						t.Errorf("%s %s: %v", path, parameters, got)
					}
				}
			}
		}
	}
	if asked.Error() != "nothing was asked" || !wide(s, "m", "4") {
		t.Error(asked)
	}
}
