package source

import (
	"path"
	"strings"
	"testing"
)

// TestParse reads each form of an address.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		text, kind, repo, ref, file, name string
	}{
		{"https://h.example/a/app|x/ssf_config.yaml", "http", "https://h.example/a/app", "", "x/ssf_config.yaml",
			"app"},
		{"https://h.example/a/app.git@main", "http", "https://h.example/a/app.git", "main", "", "app"},
		{"https://h.example/a/app@feature/a@b|./c.yaml", "http", "https://h.example/a/app", "feature/a@b", "c.yaml",
			"app"},
		{"https://me@h.example/@scope/app@v1", "http", "https://me@h.example/@scope/app", "v1", "", "app"},
		{"https://h.example/me@corp/app.git", "http", "https://h.example/me@corp/app.git", "", "", "app"},
		{"https://h.example/me@corp/app.git@x/y", "http", "https://h.example/me@corp/app.git", "x/y", "", "app"},
		{"HTTPS://h.example/app/", "http", "https://h.example/app/", "", "", "app"},
		{"http://127.0.0.1:80/app", "http", "http://127.0.0.1:80/app", "", "", "app"},
		{"git@h.example:a/app.git", "ssh", "git@h.example:a/app.git", "", "", "app"},
		{"git@h.example:a/app.git@my-branch|path/to/c.yaml", "ssh", "git@h.example:a/app.git", "my-branch",
			"path/to/c.yaml", "app"},
		{"git@h.example:app@refs/tags/v1", "ssh", "git@h.example:app", "refs/tags/v1", "", "app"},
		{"git@[::1]:app", "ssh", "git@[::1]:app", "", "", "app"},
		{"ssh://me@h.example:2222/srv/app@0123abc", "ssh", "ssh://me@h.example:2222/srv/app", "0123abc", "", "app"},
		{"ssh://h.example/~/app", "ssh", "ssh://h.example/~/app", "", "", "app"},
		{"file:///srv/app.git@x", "file", "file:///srv/app.git", "x", "", "app"},
		{"file:///srv/app/.git", "file", "file:///srv/app/.git", "", "", "app"},
		{"file:///srv/a%40b@x", "file", "file:///srv/a%40b", "x", "", "a@b"},
		{"./work/my@app|c.yaml", "folder", "./work/my@app", "", "c.yaml", "my@app"},
		{"/srv/app", "folder", "/srv/app", "", "", "app"},
	} {
		s, err := Parse(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if string(s.Kind) != c.kind || s.Repo != c.repo || s.Ref != c.ref || s.File != c.file || s.Name() != c.name {
			t.Errorf("%s: %+v, name %s", c.text, s, s.Name())
		}
	}
}

// TestParseRefuses: an error says what is wrong, and never has a password.
func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "has no repository",
		"|c.yaml":                           "has no repository",
		"https://h.example/app|":            "ends in |",
		"https://h.example/app@":            "ends in @",
		"https://h.example/app|a|b":         "more than one |",
		"https://h.example/app|/etc/x":      "leads out of the repository",
		"https://h.example/app|a/../../x":   "leads out of the repository",
		"https://h.example/app|.GIT/config": "inside .git",
		`https://h.example/app|a\b`:         `has a \`,
		"https://me:secret@h.example/app":   "https://***@h.example/app has a password",
		"ssh://me:secret@h.example/app":     "ssh://***@h.example/app has a password",
		"https://me:sec%zzret@h.example/a":  "is not a URL",
		"https://h.example/app?x=1":         "has a ? or #",
		"https:///app":                      "has no host",
		"https://h.example":                 "not the name of a repository",
		"https://h.example/..":              "not the name of a repository",
		"https://h.example/a/.git":          "",
		"ftp://h.example/app":               `"ftp" is not a way`,
		"ext::sh -c touch% /tmp/x://a":      "is not a",
		"file://other/srv/app":              "names the host other",
		"ssh://-oProxyCommand=x/app":        "do not begin with -",
		"-oProxyCommand=x@h.example:app":    "do not begin with -",
		"git@h.example:":                    "has no host or no path",
		"https://h.example/app@a..b":        "do not contain ..",
		"git@h.example:--help/app":          "a path does not begin with -",
		"https://h.example/app@-x":          "do not begin with -",
		"https://h.example/app@a//b":        "parts between slashes",
		"https://h.example/app@a b":         "do not contain a space",
		"https://h.example/app@a\x01":       "control character",
		"https://h.example:99999/app":       "is not a port",
		"/" + strings.Repeat("a", 5000):     "at most 4096",
	} {
		s, err := Parse(text)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", text, err)
		case want == "":
		case err == nil || !strings.Contains(err.Error(), want):
			t.Errorf("%q: %+v %v, want %q", text, s, err, want)
		case strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sec%zzret"):
			t.Errorf("%q: the error has the password: %v", text, err)
		}
	}
}

// TestMask replaces what may be a secret in an address.
func TestMask(t *testing.T) {
	for text, want := range map[string]string{
		"https://token@h.example/a@b": "https://***@h.example/a@b",
		"https://a:b@h.example/a":     "https://***@h.example/a",
		"ssh://git@h.example/a":       "ssh://git@h.example/a",
		"ssh://git:b@h.example/a":     "ssh://***@h.example/a",
		"git@h.example:a":             "git@h.example:a",
		"https://h.example/a@b":       "https://h.example/a@b",
	} {
		if got := Mask(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// FuzzParse: what Parse accepts names a repository, stays inside the repository, and is read again as the same.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"https://h/a/b.git@c/d|e.yaml", "git@h:a@b|c", "ssh://u@h:22/a", "file:///a@b",
		"./a|b",
		"https://u:p@h/a", "git@[::1]:a/b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if f := s.File; f != "" && (path.IsAbs(f) || strings.HasPrefix(f, "../") || f == ".." || f != path.Clean(f)) {
			t.Errorf("%q: the file %q", text, s.File)
		}
		if name := s.Name(); s.Kind != Folder && (name == "" || strings.ContainsAny(name, `/\`) || name[0] == '.') {
			t.Errorf("%q: the name %q", text, name)
		}
		again := s.Repo
		if s.Ref != "" {
			again += "@" + s.Ref
		}
		if s.File != "" {
			again += "|" + s.File
		}
		b, err := Parse(again)
		if err != nil || b.Kind != s.Kind || b.Repo != s.Repo || b.Ref != s.Ref || b.File != s.File {
			t.Errorf("%q: %+v, and read again %+v: %v", text, s, b, err)
		}
	})
}
