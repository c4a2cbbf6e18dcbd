package ssf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace/apps"
	"millrace/apps/build"
	"millrace/internal/setting"
	"millrace/internal/textfile"
	"millrace/python"
)

// Keys that millrace app reads. Other keys of an application may be the application's own.
var (
	applicationKeys = []string{"dependencies", "package", "build_system_dependencies", "files"}
	dependencyKeys  = []string{"python", "poplar", "poplar_location", "poplar_wheels"}
)

// needs returns what an application needs before it runs: packages, setup commands and its own build.
func needs(file string) (*apps.Needs, error) {
	config, err := Read(file)
	if err != nil {
		return nil, err
	}
	app, _ := config.Get("application").(Section)
	n := &apps.Needs{}
	err = fill(n, file, app)
	if err == nil {
		err = pack(n, config, app.Get("package"))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: application.%w", file, err)
	}
	command, err := stepCommand(file, config, "build")
	if err != nil {
		return nil, err
	}
	n.Setup = append(n.Setup, command)
	if module, ok := app.Get("module").(string); ok && hasTests(filepath.Join(filepath.Dir(file), module)) {
		if command, err = stepCommand(file, config, "test"); err != nil {
			return nil, err
		}
		n.Tests = append(n.Tests, command)
	}
	return n, nil
}

// hasTests reports whether a module has tests of its own.
func hasTests(module string) bool {
	text, err := textfile.Read(module, maxFile)
	return err == nil && (bytes.Contains(text, []byte("SSFApplicationTestInterface)")) ||
		bytes.Contains(text, []byte("def create_ssf_application_test_instance")))
}

func fill(n *apps.Needs, file string, app Section) (err error) {
	for _, f := range app {
		if hint := setting.Suggest(f.Name, applicationKeys); hint != "" && !slices.Contains(applicationKeys, f.Name) {
			return fmt.Errorf("%s: is not known%s", f.Name, hint)
		}
	}
	for _, of := range []struct {
		name string
		into *[]apps.Command
	}{{"setup", &n.Setup}, {"test", &n.Tests}} {
		lines, err := texts(app.Get(of.name), "\n")
		if err != nil {
			return fmt.Errorf("%s: %w", of.name, err)
		}
		for _, line := range lines {
			*of.into = append(*of.into, apps.Shell(line))
		}
	}
	if n.System, err = texts(app.Get("build_system_dependencies"), ","); err != nil {
		return fmt.Errorf("build_system_dependencies: %w", err)
	}
	if err := build.CheckSystem(n.System); err != nil {
		return err
	}
	files, err := texts(app.Get("files"), "\n")
	if err != nil {
		return fmt.Errorf("files: %w", err)
	}
	if n.Files, err = build.ParseFiles(files); err != nil {
		return err
	}
	value := app.Get("dependencies")
	dependencies, ok := value.(Section)
	if value != nil && !ok {
		return fmt.Errorf("dependencies: want python: requirements.txt, or names of packages")
	}
	for _, f := range dependencies {
		if !slices.Contains(dependencyKeys, f.Name) {
			return fmt.Errorf("dependencies.%s: is not known: there are %s", f.Name, strings.Join(dependencyKeys, ", "))
		}
	}
	words, err := texts(dependencies.Get("python"), ",")
	if err != nil {
		return fmt.Errorf("dependencies.python: %w", err)
	}
	for _, w := range words {
		path := filepath.Join(filepath.Dir(file), filepath.FromSlash(w))
		switch {
		case strings.ContainsAny(w[:1], "<>=!~;"):
			return fmt.Errorf("dependencies.python: %q begins within a requirement: write requirements with commas "+
				"into a requirements file", w)
		case strings.HasPrefix(w, "-") || strings.Contains(w, " -"):
			return fmt.Errorf("dependencies.python: %q has options: write them into a requirements file", w)
		case strings.Contains(w, ".txt"):
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("dependencies.python: %w", err)
			}
			n.Requirements = append(n.Requirements, path)
		default:
			n.Packages = append(n.Packages, w)
		}
	}
	return nil
}

// texts returns the texts of a list, or of a text with separators.
func texts(v any, separator string) (out []string, err error) {
	var all []any
	switch v := v.(type) {
	case nil:
	case string:
		for _, part := range strings.Split(v, separator) {
			all = append(all, part)
		}
	case []any:
		all = v
	default:
		return nil, fmt.Errorf("want a text or a list of texts")
	}
	for _, v := range all {
		text, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("%v is no text", v)
		}
		if text = strings.TrimSpace(text); strings.ContainsAny(text, "\r\n\x00") {
			return nil, fmt.Errorf("%q has several lines: write a list", text)
		}
		if text != "" {
			out = append(out, text)
		}
	}
	return out, nil
}

// stepCommand returns the command that calls the application's build, or runs the application's tests.
func stepCommand(file string, config Section, step string) (apps.Command, error) {
	options, err := Parse([]string{"--config", file})
	if err != nil {
		return apps.Command{}, err
	}
	dir, err := python.Unpack("")
	if err != nil {
		return apps.Command{}, err
	}
	in, err := json.Marshal(map[string]any{"config": config, "file": file, "args": options.Values(),
		"steps": []string{step}, "installed": true})
	return apps.Command{Name: step + " of the application", Args: pythonArgs(dir, step), Stdin: in,
		Read: []string{dir}}, err
}

// pythonArgs returns the command for a step of an application, build or test. dir is the folder of python.Unpack.
func pythonArgs(dir, step string) []string {
	return []string{"python3", "-c", "import sys; sys.path[:0] = sys.argv[1:3]; from millrace_compat import ssf_" +
		step + " as step; sys.exit(step.main())",
		filepath.Join(dir, python.Compat), dir}
}
