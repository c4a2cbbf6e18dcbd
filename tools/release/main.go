// Command millrace-release writes the documents of a release: the licences of the modules in the program and a bill
// of materials, and also the image for containers. scripts/release.sh, scripts/image.sh and `make check` run the
// command.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"millrace/internal/cyclonedx"
)

const usage = `usage: millrace-release licenses | notices | sbom VERSION | image ...
licenses  a line for each Go module in the program: path, version, licence; it fails when one has none of those that are allowed
notices   the texts of these licences
sbom      CycloneDX 1.5 in JSON
image     ARCH VERSION PACKAGES RELEASE SECONDS: an image for containers, of unpacked packages of Debian and the folder of an archive, with the time SECONDS since 1970
The modules are those of ./cmd/millrace in the build that GOOS, GOARCH, CGO_ENABLED and GOFLAGS (with -tags) describe`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "millrace-release:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) == 6 && args[0] == "image" {
		return image(out, args[1], args[2], args[3], args[4], args[5])
	}
	if len(args) == 0 || len(args) != 1+strings.Count(args[0], "sbom") {
		return errors.New(usage)
	}
	list, err := modules()
	if err != nil {
		return err
	}
	switch args[0] {
	case "licenses":
		return report(out, list)
	case "notices":
		return notices(out, list)
	case "sbom":
		return sbom(out, args[1], list)
	}
	return errors.New(usage)
}

// module is a module contained in the program.
type module struct {
	Path, Version, Dir string
	files              []string // with licences
	licence            string   // its SPDX identifier; "" = not recognised
}

// modules returns the program's modules, except the program's own, and the Go distribution, whose packages every
// program has.
func modules() (list []module, err error) {
	cmd := exec.Command("go", "list", "-deps", "-json=Module", "./cmd/millrace")
	cmd.Stderr = os.Stderr
	data, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	seen := map[string]bool{}
	for d := json.NewDecoder(bytes.NewReader(data)); ; {
		var p struct {
			Module *struct {
				module
				Main bool
			}
		}
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			goroot, err := exec.Command("go", "env", "GOROOT", "GOVERSION").Output()
			if err != nil {
				return nil, fmt.Errorf("go env: %w", err)
			}
			dir, version, _ := strings.Cut(strings.TrimSpace(string(goroot)), "\n")
			list = append(list, module{Path: "std", Version: version, Dir: dir})
			slices.SortFunc(list, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
			return list, examine(list)
		case err != nil:
			return nil, fmt.Errorf("go list: %w", err)
		}
		if p.Module != nil && !p.Module.Main && !seen[p.Module.Path] {
			seen[p.Module.Path] = true
			list = append(list, p.Module.module)
		}
	}
}

// examine reads the licences of the modules.
func examine(list []module) error {
	for i := range list {
		m := &list[i]
		files, err := os.ReadDir(m.Dir)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
		for _, f := range files {
			name := strings.ToUpper(f.Name())
			// Eclipse's modules may be used by either of two licences; EDL-V10 has the text of BSD-3-Clause.
			if !f.Type().IsRegular() || !slices.ContainsFunc([]string{"LICEN", "COPYING", "NOTICE", "EDL-V10"},
				func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
				continue
			}
			path := filepath.Join(m.Dir, f.Name())
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			m.files = append(m.files, path)
			if m.licence == "" {
				m.licence = identify(string(text))
			}
		}
	}
	return nil
}

// identify returns the SPDX identifier of a text with a licence allowed for a program without source, or "".
func identify(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	has := func(phrases ...string) bool {
		return !slices.ContainsFunc(phrases, func(p string) bool { return !strings.Contains(text, p) })
	}
	switch {
	case has("Apache License", "Version 2.0"):
		return "Apache-2.0"
	case has("Permission is hereby granted, free of charge",
		"The above copyright notice and this permission notice shall be included"):
		return "MIT"
	case has("Permission to use, copy, modify, and", "with or without fee is hereby granted"):
		return "ISC"
	case has("Redistribution and use in source and binary forms", "may be used to endorse or promote"):
		return "BSD-3-Clause"
	case has("Redistribution and use in source and binary forms"):
		return "BSD-2-Clause"
	}
	return ""
}

// report writes the licences, and fails for a module without an allowed licence.
func report(out io.Writer, list []module) error {
	var bad []string
	for _, m := range list {
		if m.licence == "" {
			bad = append(bad, m.Path)
		}
		if _, err := fmt.Fprintf(out, "%-12s  %s %s\n", m.licence, m.Path, m.Version); err != nil {
			return err
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("%s: none of the licences Apache-2.0, MIT, ISC, BSD-3-Clause and BSD-2-Clause was found: "+
			"use another module, or teach tools/release its licence", strings.Join(bad, ", "))
	}
	return nil
}

// notices writes the texts of the licences.
func notices(out io.Writer, list []module) error {
	for _, m := range list {
		for _, file := range m.files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(out, "== %s %s: %s\n\n%s\n\n", m.Path, m.Version, filepath.Base(file),
				bytes.TrimSpace(text)); err != nil {
				return err
			}
		}
	}
	return nil
}

// sbom writes the bill of materials: the Go modules, and the libraries in C in MILLRACE_LIBRARIES, each as
// NAME=VERSION=SPDX with _ for the spaces of the expression.
func sbom(out io.Writer, version string, list []module) error {
	var parts []cyclonedx.Component
	for _, m := range list {
		typ := "library"
		if m.Path == "std" {
			typ = "framework"
		}
		parts = append(parts, cyclonedx.New(typ, m.Path, m.Version, "pkg:golang/"+m.Path+"@"+m.Version, m.licence))
	}
	for _, lib := range strings.Fields(os.Getenv("MILLRACE_LIBRARIES")) {
		f := strings.Split(lib, "=")
		if len(f) != 3 {
			return fmt.Errorf("MILLRACE_LIBRARIES: %q is not NAME=VERSION=SPDX", lib)
		}
		parts = append(parts, cyclonedx.New("library", f[0], f[1], "pkg:generic/"+f[0]+"@"+f[1],
			strings.ReplaceAll(f[2], "_", " ")))
	}
	self := cyclonedx.New("application", "millrace", version, "", "Apache-2.0")
	return cyclonedx.Write(out, self, parts)
}
