package server

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"millrace/config"
	"millrace/stream"
)

// ffmpeg is confined where the kernel supports confinement, unless the setting says otherwise; the log reports
// missing support.
func TestSandboxSetting(t *testing.T) {
	lacks := errors.New("the kernel has no Landlock")
	for _, c := range []struct {
		setting string
		lacks   error
		want    bool
		says    string
	}{
		{"auto", nil, true, ""},
		{"require", nil, true, ""},
		{"off", nil, false, ""},
		{"auto", lacks, false, "is not confined"},
		{"off", lacks, false, ""},
		{"require", lacks, false, ""},
	} {
		var out bytes.Buffer
		got, err := sandbox(c.setting, c.lacks, slog.New(slog.NewTextHandler(&out, nil)))
		if got != c.want || strings.Count(out.String(), "\n") > 1 || !strings.Contains(out.String(), c.says) ||
			(c.says == "") != (out.Len() == 0) {
			t.Errorf("%s, %v: %v, %q", c.setting, c.lacks, got, &out)
		}
		if refused := c.setting == "require" && c.lacks != nil; (err != nil) != refused {
			t.Errorf("%s, %v: %v", c.setting, c.lacks, err)
		} else if refused && (!errors.Is(err, lacks) || !strings.HasPrefix(err.Error(), "sandbox: ") ||
			stream.CodeOf(err) != stream.Unavailable) {
			t.Errorf("%v", err)
		}
	}
}

// Programs are confined only if the setting says so, and never get write access to the server's secrets.
func TestConfineSetting(t *testing.T) {
	lacks := errors.New("the kernel has no Landlock")
	for _, c := range []struct {
		setting string
		lacks   error
		want    bool
		says    string
	}{
		{"", nil, false, ""},
		{"off", lacks, false, ""},
		{"auto", nil, true, ""},
		{"require", nil, true, ""},
		{"auto", lacks, false, "are not confined"},
		{"require", lacks, false, ""},
	} {
		var out bytes.Buffer
		cfg := Config{Confine: config.Confine{Programs: c.setting, Network: true}}
		got, err := confinement(&cfg, c.lacks, slog.New(slog.NewTextHandler(&out, nil)))
		if (got != nil) != c.want || got != nil && !got.Network || !strings.Contains(out.String(), c.says) {
			t.Errorf("%s, %v: %+v, %q", c.setting, c.lacks, got, &out)
		}
		if refused := c.setting == "require" && c.lacks != nil; (err != nil) != refused {
			t.Errorf("%s, %v: %v", c.setting, c.lacks, err)
		} else if refused && (!errors.Is(err, lacks) || !strings.HasPrefix(err.Error(), "confine.programs: ") ||
			stream.CodeOf(err) != stream.Unavailable) {
			t.Errorf("%v", err)
		}
	}
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for i, cfg := range []Config{
		{File: file("x")}, {APIKey: "file:" + file("x")}, {Auth: config.Auth{Keys: file("x")}},
		{Auth: config.Auth{Users: file("x")}}, {Auth: config.Auth{Module: file("x")}},
		{TLS: config.TLS{Key: file("x")}}, {TLS: config.TLS{ACME: config.ACME{Cache: file("x")}}}, {Audit: file("x")},
		{StreamsFile: file("x")},
	} {
		cfg.Confine = config.Confine{Programs: "auto", Write: []string{dir}}
		if _, err := confinement(&cfg, nil, slog.New(slog.DiscardHandler)); err == nil ||
			!strings.HasPrefix(err.Error(), "confine.write: ") || !strings.Contains(err.Error(), file("x")) {
			t.Errorf("%d: %v", i, err)
		}
	}
}
