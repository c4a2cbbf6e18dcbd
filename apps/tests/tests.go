// Package tests runs the tests of an application against a service: commands of the configuration file, a folder tests
// by pytest, and a Go module by go test.
//
// The package owns the kinds of tests and their JUnit report. The package must not know how a service is started.
package tests

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"millrace/apps"
	"millrace/apps/build"
	"millrace/apps/program"
	"millrace/internal/scratch"
)

// LimitName is the flag of Options.Limit.
const LimitName = "--test-timeout"

// Options are the options of Run.
type Options struct {
	Environment *build.Environment // for commands and pytest; nil = the interpreter of PATH
	Env         []string           // variables that name the service
	Ports       []uint16           // of the service
	Network     bool               // for tests, besides the service
	Pass        []string
	Limit       time.Duration  // of each suite
	Limits      program.Limits // the same
	OnLine      func(suite, line string)
}

// Suite is the result of a command, of pytest or of go test.
type Suite struct {
	Name     string  `json:"name"`
	Tests    int     `json:"tests"`
	Failed   int     `json:"failed"` // with errors
	Skipped  int     `json:"skipped"`
	Seconds  float64 `json:"seconds"`
	Output   string  `json:"output,omitempty"` // the end, of a suite that fails
	document []byte  // testsuite elements of JUnit
}

// call is a call of Run.
type call struct {
	Options
	app *apps.App
	dir string // of the configuration file
}

// Found reports whether the application has tests.
func Found(app *apps.App, needs *apps.Needs) bool {
	dir := filepath.Dir(app.File)
	return len(needs.Tests) > 0 || hasPytest(dir) || len(goModules(dir)) > 0
}

// Run runs all tests. A suite that fails is no error.
func Run(ctx context.Context, app *apps.App, needs *apps.Needs, o Options) ([]*Suite, error) {
	c := &call{Options: o, app: app, dir: filepath.Dir(app.File)}
	suites := []*Suite{}
	add := func(s *Suite, err error) error {
		if err == nil {
			suites = append(suites, s)
		}
		return err
	}
	for _, command := range needs.Tests {
		if err := add(c.command(ctx, command)); err != nil {
			return nil, err
		}
	}
	if hasPytest(c.dir) {
		if err := add(c.pytest(ctx)); err != nil {
			return nil, err
		}
	}
	for _, dir := range goModules(c.dir) {
		if err := add(c.goTest(ctx, dir)); err != nil {
			return nil, err
		}
	}
	return suites, nil
}

// program returns the program of a suite.
func (c *call) program(name string, command apps.Command) *program.Program {
	p := build.Program(command, c.app, c.Environment)
	p.Env = append(p.Env, c.Env...)
	p.Connect, p.Network, p.Pass, p.Limit, p.LimitName = c.Ports, c.Network, c.Pass, c.Limit, LimitName
	p.Limits = c.Limits
	if c.OnLine != nil {
		p.OnLine = func(line string) { c.OnLine(name, line) }
	}
	return p
}

// run runs the program of a suite. failed is the failure of the program itself; err ends all tests.
func run(ctx context.Context, p *program.Program) (out string, took time.Duration, failed, err error) {
	start := time.Now()
	out, err = p.Run(ctx)
	if err != nil && ctx.Err() != nil {
		return "", 0, nil, err
	}
	return out, time.Since(start), err, nil
}

// command runs a command of the configuration file, which is a suite with one test.
func (c *call) command(ctx context.Context, command apps.Command) (*Suite, error) {
	out, took, failed, err := run(ctx, c.program(command.Name, command))
	if err != nil {
		return nil, err
	}
	s := &Suite{Name: command.Name, Seconds: took.Seconds()}
	test := junitCase{Class: "commands", Name: command.Name, Seconds: took.Seconds(), Output: out}
	if failed != nil {
		s.Output, test.Output, test.Failure = out, "", &junitFailure{Message: firstLine(failed), Text: out}
	}
	return s, s.encode([]junitCase{test})
}

func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(text, ":")
}

// hasPytest reports whether the folder tests has tests for pytest.
func hasPytest(dir string) bool {
	found := false
	_ = filepath.WalkDir(filepath.Join(dir, "tests"), func(path string, d fs.DirEntry, err error) error {
		name := filepath.Base(path)
		if err == nil && !d.IsDir() && strings.HasSuffix(name, ".py") &&
			(strings.HasPrefix(name, "test_") || strings.HasSuffix(name, "_test.py")) {
			found = true
			return fs.SkipAll
		}
		return nil
	})
	return found
}

// pytest runs the folder tests by pytest, which writes the report.
func (c *call) pytest(ctx context.Context) (*Suite, error) {
	dir, err := scratch.Make(scratch.Child)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Remove() }()
	report := filepath.Join(dir.Path, "report.xml")
	p := c.program("pytest", apps.Command{Name: "pytest", Args: []string{"python3", "-m", "pytest", "tests", "-p",
		"no:cacheprovider", "--junitxml", report}})
	p.Write = append(p.Write, dir.Path)
	out, took, failed, err := run(ctx, p)
	if err != nil {
		return nil, err
	}
	return pytestSuite(report, out, took, failed)
}

// errNoTest is the failure of a suite without a result.
var errNoTest = errors.New("no test ran")

// pytestSuite returns the results of pytest from the report.
func pytestSuite(report, out string, took time.Duration, failed error) (*Suite, error) {
	s := &Suite{Name: "pytest", Seconds: took.Seconds()}
	if failed != nil {
		s.Output = out
	}
	err := s.read(report)
	if failed != nil && errors.Is(err, fs.ErrNotExist) && strings.Contains(out, "No module named pytest") {
		return nil, errors.New("the folder tests needs pytest: write pytest into tests/requirements.txt")
	}
	if err == nil && s.Tests == 0 {
		err = errNoTest
	}
	if err != nil || failed != nil && s.Failed == 0 { // pytest itself has failed
		if failed == nil {
			failed = err
		}
		s.Output = out
		return s, s.encode([]junitCase{{Class: "pytest", Name: "pytest", Seconds: s.Seconds,
			Failure: &junitFailure{Message: firstLine(failed), Text: out}}})
	}
	return s, nil
}

// goModules returns the folders of the application with Go modules that have tests.
func goModules(dir string) (found []string) {
	for _, d := range []string{dir, filepath.Join(dir, "tests")} {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil && hasGoTests(d) {
			found = append(found, d)
		}
	}
	return found
}

func hasGoTests(dir string) bool {
	found := false
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case d.IsDir() && path != dir && (d.Name() == "vendor" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			found = true
			return fs.SkipAll
		}
		return nil
	})
	return found
}

// Summary is a line about the suite.
func (s *Suite) Summary() string {
	text := fmt.Sprintf("%s: %d passed", s.Name, s.Tests-s.Failed-s.Skipped)
	if s.Failed > 0 {
		text += fmt.Sprintf(", %d failed", s.Failed)
	}
	if s.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped", s.Skipped)
	}
	return text + fmt.Sprintf(" in %.1f s", s.Seconds)
}
