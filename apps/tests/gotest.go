package tests

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"time"

	"millrace/apps"
	"millrace/apps/program"
	"millrace/internal/scratch"
)

// goTest runs the tests of a Go module. Required modules come from the folder vendor, or from the network if allowed.
func (c *call) goTest(ctx context.Context, dir string) (*Suite, error) {
	name := "go test"
	p := c.program(name, apps.Command{Name: name, Args: []string{"go", "test", "-json", "./..."}})
	p.Dir = dir
	// The cache is of one call: a test could change the code that later calls take from the cache.
	cache, err := scratch.Make(scratch.Child)
	if err != nil {
		return nil, err
	}
	defer func() { _ = cache.Remove() }()
	p.Env = append(p.Env, "GOCACHE="+filepath.Join(cache.Path, "build"), "GOMODCACHE="+filepath.Join(cache.Path, "mod"),
		"GOTOOLCHAIN=local", "GOFLAGS=-buildvcs=false -modcacherw", "GOTELEMETRY=off")
	p.Write = append(p.Write, cache.Path)
	p.Read = append(p.Read, goFiles(ctx)...)
	events := map[string]*junitCase{}
	var order []*junitCase
	var other strings.Builder // output of no test, such as errors of the compiler
	show := p.OnLine
	p.OnLine = func(line string) {
		text := goEvent(line, events, &order, &other)
		if show != nil && text != "" {
			show(text)
		}
	}
	_, took, failed, err := run(ctx, p)
	if err != nil {
		return nil, err
	}
	s := &Suite{Name: name, Seconds: took.Seconds()}
	cases := goCases(order, failed, other.String())
	var out strings.Builder
	for _, e := range cases {
		if e.Failure != nil {
			out.WriteString(e.Failure.Text)
		}
	}
	s.Output = out.String()
	return s, s.encode(cases)
}

// goFiles returns the files of the installation of Go, and never a folder that has other files, too.
func goFiles(ctx context.Context) []string {
	files := program.Installation("go")
	p := &program.Program{Args: []string{"go", "env", "GOROOT"}, Dir: "/", Read: files, Limit: time.Minute,
		LimitName: LimitName, Env: []string{"GOTOOLCHAIN=local", "GOTELEMETRY=off", "GOENV=off"}}
	out, err := p.Run(ctx)
	root := strings.TrimSpace(out)
	if err != nil || !filepath.IsAbs(root) {
		return files // and go test fails
	}
	for _, name := range []string{"bin", "go.env", "lib", "misc", "pkg", "src", "VERSION"} {
		files = append(files, filepath.Join(root, name))
	}
	return files
}

// goCases returns the results of go test. A run without any test has failed: a build tag or a TestMain kept the tests
// from running.
func goCases(order []*junitCase, failed error, other string) []junitCase {
	cases := []junitCase{}
	broken := false
	for _, e := range order {
		broken = broken || e.Failure != nil
		cases = append(cases, *e)
	}
	if failed == nil && len(cases) == 0 {
		failed = errNoTest
	}
	if failed != nil && !broken {
		cases = append(cases, junitCase{Class: "go test", Name: "go test",
			Failure: &junitFailure{Message: firstLine(failed), Text: other}})
	}
	return cases
}

// Limits of a report.
const (
	maxTests  = 100_000
	maxOutput = 64 << 10 // bytes of a test
)

// goEvent reads a line of go test -json, and returns the line of output in it.
func goEvent(line string, events map[string]*junitCase, order *[]*junitCase, other *strings.Builder) string {
	var e struct {
		Action, Package, Test, Output string
		Elapsed                       float64
	}
	if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
		if other.Len() < maxOutput {
			other.WriteString(line + "\n") // of the compiler
		}
		return line
	}
	if e.Test == "" {
		if (e.Action == "output" || e.Action == "build-output") && other.Len() < maxOutput {
			other.WriteString(e.Output)
		}
		return strings.TrimSpace(e.Output)
	}
	key := e.Package + "\n" + e.Test
	c := events[key]
	if c == nil {
		if len(events) >= maxTests {
			return ""
		}
		c = &junitCase{Class: e.Package, Name: e.Test, Failure: &junitFailure{Message: "has not ended"}}
		events[key], *order = c, append(*order, c)
	}
	switch e.Action {
	case "output":
		if len(c.Output) < maxOutput {
			c.Output += e.Output
		}
	case "pass":
		c.Failure, c.Output, c.Seconds = nil, "", e.Elapsed
	case "skip":
		c.Skipped, c.Failure, c.Seconds = &junitSkipped{Message: strings.TrimSpace(c.Output)}, nil, e.Elapsed
		c.Output = ""
	case "fail":
		c.Failure, c.Seconds, c.Output = &junitFailure{Message: "failed", Text: c.Output}, e.Elapsed, ""
	}
	return strings.TrimSpace(e.Output)
}
