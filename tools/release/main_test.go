package main

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"millrace/internal/cyclonedx"
)

// The repository's own licence is recognised; a text without a licence is not, and fails the report.
func TestIdentify(t *testing.T) {
	own, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	if got := identify(string(own)); got != "Apache-2.0" {
		t.Errorf("%q", got)
	}
	for _, text := range []string{"", "All rights reserved.", "GNU GENERAL PUBLIC LICENSE Version 2",
		"Mozilla Public License Version 2.0"} {
		if got := identify(text); got != "" {
			t.Errorf("%q is %s", text, got)
		}
	}
	var out bytes.Buffer
	err = report(&out, []module{{Path: "good", licence: "MIT"}, {Path: "bad"}})
	if err == nil || !strings.Contains(err.Error(), "bad: none of the licences") ||
		strings.Contains(err.Error(), "good") {
		t.Errorf("%v", err)
	}
}

// The modules of the program have allowed licences, and all are in the bill of materials and in the notices.
func TestModules(t *testing.T) {
	t.Chdir("../..")
	list, err := modules()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"github.com/gofiber/fiber/v2", "google.golang.org/grpc", "std"} {
		if !slices.ContainsFunc(list, func(m module) bool { return m.Path == want }) {
			t.Errorf("%s is not among the modules", want)
		}
	}
	var out bytes.Buffer
	if err := report(&out, list); err != nil {
		t.Error(err)
	}
	t.Setenv("MILLRACE_LIBRARIES", "libgcc=12.2.0=GPL-3.0-or-later_WITH_GCC-exception-3.1")
	var bom struct {
		Components []cyclonedx.Component `json:"components"`
	}
	first, second := new(bytes.Buffer), new(bytes.Buffer)
	if err := sbom(first, "v1", list); err != nil {
		t.Fatal(err)
	}
	if err := sbom(second, "v1", list); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("%v: two files of the same parts differ", err)
	}
	if err := json.Unmarshal(first.Bytes(), &bom); err != nil || len(bom.Components) != len(list)+1 {
		t.Fatalf("%v: %d components of %d modules and one library", err, len(bom.Components), len(list))
	}
	if c := bom.Components[len(list)]; c.Name != "libgcc" || len(c.Licences) != 1 ||
		c.Licences[0].Expression != "GPL-3.0-or-later WITH GCC-exception-3.1" {
		t.Errorf("%+v", c)
	}
	out.Reset()
	if err := notices(&out, list); err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		if !strings.Contains(out.String(), "== "+m.Path+" "+m.Version+": ") {
			t.Errorf("the notices lack %s", m.Path)
		}
	}
	t.Setenv("MILLRACE_LIBRARIES", "libjpeg-turbo")
	if err := sbom(&out, "v1", list); err == nil || !strings.Contains(err.Error(), "NAME=VERSION=SPDX") {
		t.Errorf("%v", err)
	}
}
