package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"millrace/workers"
	_ "millrace/workers/identity"
	_ "millrace/workers/onnx"
	_ "millrace/workers/python"
)

const anyDigest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// Addresses are sources of models by the name of their file, and stay as they are where paths are relative to the file.
func TestModelAddresses(t *testing.T) {
	c, err := Parse([]byte(`
model_repository: git+https://git.example.org/team/models@main#models
models:
  - {name: a, source: "https://h.example.org/m.onnx#sha256=`+anyDigest+`"}
  - {name: b, source: "git+ssh://git@git.example.org/m#x/service.py:Serve", poll: 1m}
  - {name: c, source: "oci://r.example.org/m:v1#m.onnx", poll: 90s}
  - {name: d, source: "s3://bucket/m.onnx"}
tasks: {s3: {access_key: a, secret_key: b}}
`), "f")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, m := range c.Models {
		kinds = append(kinds, m.WithDefaults().Kind)
	}
	if want := []string{"onnx", "python", "onnx", "onnx"}; !reflect.DeepEqual(kinds, want) || len(c.Addresses()) != 5 ||
		c.Models[2].Poll != 90*time.Second {
		t.Errorf("kinds %v, addresses %v", kinds, c.Addresses())
	}
	for source, want := range map[string]string{"git+https://h.example.org/team/m@main#a/digits.onnx": "digits",
		"oci://h.example.org/m:v1#digits.onnx": "digits", "s3://bucket/a/digits.onnx": "digits",
		"https://h.example.org/digits.onnx#sha256=" + anyDigest: "digits"} {
		if got := ModelFor(source); got.Name != want || got.Source != source {
			t.Errorf("%s is named %q", source, got.Name)
		}
	}
}

// Wrong addresses and settings of sources are refused with the path of the setting, without passwords.
func TestModelAddressErrors(t *testing.T) {
	for text, want := range map[string]string{
		"model_repository: git+https://me:hidden@h.example.org/m":                       "model_repository: has a password",
		"models: [{name: a, source: \"git+https://me:hidden@h.example.org/m#a.onnx\"}]": "models[0].source: .* has a password",
		"models: [{name: a, source: \"https://h.example.org/m.onnx\"}]":                 "models[0].source: .* has no digest",
		"models: [{name: a, source: \"git+https://h.example.org/m\"}]":                  "models[0].source: .* names no file",
		"models: [{name: a, source: \"git+https://h.example.org/m#a.exe\"}]":            "models[0].source: .* neither a .onnx",
		"models: [{name: a, source: identity, poll: 1m}]":                               "models[0].poll: needs an address",
		"model_sources: {tokens: [hidden]}":                                             "model_sources.tokens: has an entry",
		"model_sources: {tokens: [\"a.example.org=hid den\"]}":                          "model_sources.tokens: has an entry",
		"model_sources: {tokens: [\"a.example.org/x=A\"]}":                              "model_sources.tokens: has an entry",
	} {
		_, err := Parse([]byte(text), "f")
		before, after, _ := strings.Cut(want, ".*")
		if err == nil || !strings.Contains(err.Error(), before) || !strings.Contains(err.Error(), after) ||
			strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	c := Config{Tasks: Tasks{S3: S3{AccessKey: "a", SecretKey: "b"}}}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "no model has an address s3://") {
		t.Errorf("%v", err)
	}
	c.Models = []workers.Config{{Name: "a", Source: "s3://bucket/m.onnx"}}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.Tasks.S3.Endpoint = "http://s3.example.org"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "tasks.s3.endpoint") {
		t.Errorf("%v", err)
	}
}
