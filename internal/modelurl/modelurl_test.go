package modelurl

import (
	"io/fs"
	"strings"
	"testing"
)

var sum = strings.Repeat("0123456789abcdef", 4)

// Addresses are read, with the name of the file and the text for messages.
func TestParse(t *testing.T) {
	for text, want := range map[string]struct {
		url         URL
		file, shown string
	}{
		"git+https://git.example.org/team/m@main#a/model.onnx": {URL{Scheme: Git,
			Base: "https://git.example.org/team/m@main", Path: "a/model.onnx"}, "model.onnx", ""},
		"git+https://token@git.example.org/team/m#x.py:Serve": {URL{Scheme: Git,
			Base: "https://token@git.example.org/team/m", Path: "x.py:Serve"}, "x.py:Serve",
			"git+https://***@git.example.org/team/m#x.py:Serve"},
		"git+ssh://git@git.example.org/m.git": {URL{Scheme: Git, Base: "ssh://git@git.example.org/m.git"}, "", ""},
		"GIT+file:///srv/m@v1":                {URL{Scheme: Git, Base: "file:///srv/m@v1"}, "", "git+file:///srv/m@v1"},
		"git+http://127.0.0.1:80/m":           {URL{Scheme: Git, Base: "http://127.0.0.1:80/m"}, "", ""},
		"s3://bucket/a/model.onnx":            {URL{Scheme: S3, Base: "bucket/a/model.onnx"}, "model.onnx", ""},
		"s3://bucket/a/":                      {URL{Scheme: S3, Base: "bucket/a/"}, "", ""},
		"s3://bucket":                         {URL{Scheme: S3, Base: "bucket"}, "", ""},
		"s3://bucket/a#b/./c.onnx": {URL{Scheme: S3, Base: "bucket/a", Path: "b/c.onnx"}, "c.onnx",
			"s3://bucket/a#b/c.onnx"},
		"https://h.example.org/m.onnx?key=1#sha256=" + strings.ToUpper(sum): {URL{Scheme: HTTP,
			Base: "https://h.example.org/m.onnx?key=1", Digest: sum}, "m.onnx",
			"https://h.example.org/m.onnx?***#sha256=" + sum},
		"https://h.example.org/m.tar.gz#sha256=" + sum + "/a/m.onnx": {URL{Scheme: HTTP,
			Base: "https://h.example.org/m.tar.gz", Digest: sum, Path: "a/m.onnx"}, "m.onnx", ""},
		"oci://r.example.org:5000/team/m:v1#m.onnx": {URL{Scheme: OCI, Base: "r.example.org:5000/team/m:v1",
			Path: "m.onnx"}, "m.onnx", ""},
		"oci://r.example.org/m@sha256:" + sum: {URL{Scheme: OCI, Base: "r.example.org/m@sha256:" + sum}, "", ""},
	} {
		got, err := Parse(text)
		if want.shown == "" {
			want.shown = text
		}
		if err != nil || got != want.url || got.File() != want.file || got.String() != want.shown || !Is(text) {
			t.Errorf("%s: %+v file %q shown %q is %v, %v, want %+v", text, got, got.File(), got, Is(text), err, want)
		}
	}
}

// Wrong addresses are refused with the reason, and without their passwords.
func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"git+https://me:hidden@h.example.org/m":                "password",
		"git+ssh://me:hidden@h.example.org/m":                  "password",
		"https://me:hidden@h.example.org/m.onnx#sha256=" + sum: "password",
		"https://hidden@h.example.org/m.onnx#sha256=" + sum:    "user name",
		"oci://me:hidden@h.example.org/m":                      "password",
		"s3://key:hidden@bucket/m":                             "user or password",
		"git+https://h.example.org/m#../x":                     "leads out",
		"git+https://h.example.org/m#/etc/passwd":              "leads out",
		`git+https://h.example.org/m#a\b`:                      `write /`,
		"git+https://h.example.org/m#":                         "ends in #",
		"git+https://h.example.org/m#a#b":                      "more than one #",
		"git+http://h.example.org/m":                           "not encrypted",
		"git+ftp://h.example.org/m":                            "not a way",
		"git+file://srv/m":                                     "absolute path",
		"git+https:///m":                                       "no host",
		"git+ssh://-oProxy/m":                                  "begins with -",
		"s3://bucket/a/../b":                                   "elements are empty",
		"s3://B/m":                                             "bucket",
		"https://h.example.org/m.onnx":                         "has no digest",
		"https://h.example.org/m.onnx#sha256=12":               "has no digest",
		"https://h.example.org/m.onnx#md5=" + sum:              "has no digest",
		"https://h.example.org/m.zip#sha256=" + sum + "/":      "ends in /",
		"https://h.example.org/m.zip#sha256=" + sum + "/../x":  "leads out",
		"https://h.example.org/#sha256=" + sum:                 "names no file",
		"http://h.example.org/m.onnx#sha256=" + sum:            "not encrypted",
		"http://localhost.example.org/m.onnx#sha256=" + sum:    "not encrypted",
		"oci://h.example.org":                                  "no name of an image",
		"oci://https://h.example.org/m":                        "://",
		"s3://bucket/" + strings.Repeat("a", maxText):          "bytes",
		"s3://bucket/a\nb":                                     "control character",
	} {
		u, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%.80s: %+v, %v, want %q", text, u, err, want)
		}
		if strings.Contains(Mask(text), "hidden") {
			t.Errorf("the mask of %s is %s", text, Mask(text))
		}
	}
}

// Paths, kinds and inference servers are not addresses of sources.
func TestIs(t *testing.T) {
	for _, text := range []string{"motion", "./model.onnx", "git", "https://h.example.org", "http://h.example.org:8000/m",
		"grpc://h:8001", "h:8000", "container://image", "ftp://h/m.onnx", "https://m.onnx"} {
		if Is(text) {
			t.Errorf("%s is an address of a source", text)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"git+https://u@h/p@main#a/b.onnx", "git+file:///p", "git+ssh://u@h/p", "s3://bucket/p#q",
		"https://h/m.onnx#sha256=" + sum, "https://h/m.zip?k#sha256=" + sum + "/a", "oci://h:1/m:v1#a", "git+http://[::1]/p",
		"https://u:p@h/m.onnx#sha256=" + sum} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := Parse(text)
		if err != nil {
			return
		}
		if !Is(text) {
			t.Errorf("%q is read, and is no address", text)
		}
		if u.Path != "" && !fs.ValidPath(u.Path) {
			t.Errorf("%q has the path %q", text, u.Path)
		}
		if again, err := Parse(u.String()); !strings.Contains(u.String(), "***") && (err != nil || again != u) {
			t.Errorf("%q is shown as %q, which is %+v, %v, want %+v", text, u, again, err, u)
		}
	})
}
