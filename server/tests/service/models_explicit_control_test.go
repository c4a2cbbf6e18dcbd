package service_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/config"
	"millrace/internal/servertest"
	"millrace/server"
)

// controlled is a configuration with a repository of the models a and b and a model with a broken configuration.
func controlled(t *testing.T, mode string, load ...string) server.Config {
	dir := servertest.WriteRepository(t, map[string]string{
		"a/config.yaml": "source: identity\n", "b/config.yaml": "source: delay\n",
		"broken/config.yaml": "source: nothing\n",
	})
	return server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off, Log: config.Log{Level: "error"},
		Repository: config.Repository{Dir: dir, Mode: mode, Load: load}}
}

// loaded lists the ready models, and the other models of the index in brackets.
func loaded(s *server.Server) string {
	var out []string
	for _, e := range s.Models().Index() {
		name := e.Name
		if e.State != "READY" {
			name = "(" + name + ")"
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

// With model_control_mode explicit, the start loads the models of load_model, and requests load other models.
func TestExplicitControl(t *testing.T) {
	cfg := controlled(t, config.LoadExplicit, "b")
	s, stop := servertest.RunWith(t, cfg)
	if got := loaded(s); got != "(a) b (broken)" {
		t.Errorf("at the start: %s", got)
	}
	path := "http://" + s.Addr("http") + "/v2/"
	body := `{"inputs":[{"name":"x","datatype":"INT32","shape":[1],"data":[7]}]}`
	if code, text := servertest.PostJSON(t, path+"models/a/infer", body); code != 404 {
		t.Errorf("a model that is not loaded: %d %s", code, text)
	}
	if code, text := servertest.PostJSON(t, path+"repository/models/a/load", ""); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	if code, text := servertest.PostJSON(t, path+"repository/models/broken/load", ""); code != 400 ||
		!strings.Contains(text, "nothing") {
		t.Errorf("%d %s", code, text)
	}
	if code, text := servertest.PostJSON(t, path+"models/a/infer", body); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	if code, text := servertest.PostJSON(t, path+"repository/models/b/unload", ""); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	if got := loaded(s); got != "a (b) (broken)" {
		t.Errorf("after the requests: %s", got)
	}
	// The next load applies a change of the model's file.
	if err := os.WriteFile(filepath.Join(cfg.Repository.Dir, "a/config.yaml"), []byte("source: delay\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"INT32", "delay_us"} {
		if _, text := servertest.PostJSON(t, path+"models/a/infer", body); !strings.Contains(text, want) {
			t.Errorf("%s, want %s", text, want)
		}
		if code, text := servertest.PostJSON(t, path+"repository/models/a/load", ""); code != 200 {
			t.Errorf("%d %s", code, text)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Without load_model the start loads no model; * loads all models, and a failed load fails the start unless
// exit_on_error is off; a missing model fails the start too.
func TestExplicitControlAtTheStart(t *testing.T) {
	for _, c := range []struct {
		load  []string
		exit  bool
		want  string
		fails string
	}{
		{nil, true, "(a) (b) (broken)", ""},
		{[]string{"a", "b"}, true, "a b (broken)", ""},
		{[]string{"*"}, true, "", "nothing"},
		{[]string{"*"}, false, "a b (broken)", ""},
		{[]string{"a", "nobody"}, true, "", "nobody"},
		{[]string{"a", "nobody"}, false, "a (b) (broken)", ""},
	} {
		cfg := controlled(t, config.LoadExplicit, c.load...)
		cfg.Repository.Exit = &c.exit
		if c.fails != "" {
			s, err := server.New(cfg)
			if err == nil {
				err = s.Run(context.Background())
			}
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("load_model %v, exit_on_error %v: %v", c.load, c.exit, err)
			}
			continue
		}
		s, stop := servertest.RunWith(t, cfg)
		if got := loaded(s); got != c.want {
			t.Errorf("load_model %v, exit_on_error %v: %s, want %s", c.load, c.exit, got, c.want)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}
