package server

import (
	"path/filepath"
	"strings"
	"testing"

	"millrace/apps/source"
	"millrace/config"
	"millrace/workers"
)

// The token of Git is for the only Git host. Of several hosts, an entry names the host.
func TestGitHost(t *testing.T) {
	const a, b = "git+https://A.example.org/m#m.onnx", "git+https://b.example.org:444/m#m.onnx"
	for _, c := range []struct {
		addresses, tokens []string
		host, want        string
	}{
		{[]string{a, a + "/x.onnx", "oci://r.example.org/m:v1#m.onnx", "git+ssh://git@c.example.org/m#m.onnx"}, nil,
			"a.example.org:443", ""},
		{[]string{"git+file:///srv/m#m.onnx"}, nil, "", ""},
		{[]string{a, b}, nil, "", "Git hosts a.example.org:443 and b.example.org:444: add"},
		{[]string{a, b}, []string{"c.example.org=OTHER"}, "", "such as a.example.org:443=MILLRACE_GIT_TOKEN"},
		{[]string{a, b}, []string{"me@b.example.org:444=MILLRACE_GIT_TOKEN"}, "", ""},
		{[]string{a}, []string{"b.example.org=MILLRACE_GIT_TOKEN"}, "", ""},
	} {
		cfg := Config{ModelSources: config.ModelSources{Tokens: c.tokens, Cache: filepath.Join(t.TempDir(), "cache")}}
		for _, address := range c.addresses {
			cfg.Models = append(cfg.Models, workers.Config{Name: "m", Source: address})
		}
		host, err := gitHost(&cfg)
		if host != c.host || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v with %v: %q, %v", c.addresses, c.tokens, host, err)
		}
		t.Setenv(source.EnvToken, "secret")
		t.Setenv("OTHER", "other")
		m, err := OpenModelSources(&cfg, nil, nil)
		if (err == nil) != (c.want == "") {
			t.Errorf("%v with %v: %v", c.addresses, c.tokens, err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
