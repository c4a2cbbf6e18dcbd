package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"millrace/apps"
	"millrace/apps/build"
	"millrace/apps/tests"
	"millrace/config"
	"millrace/internal/child"
)

// envGRPC is the variable of tests with the address of gRPC. config.EnvAddr has the URL of HTTP, and config.EnvToken
// the key.
const envGRPC = "MILLRACE_GRPC_ADDR"

// appTests runs the tests of the application against a service.
func appTests(flags *pflag.FlagSet) appStep {
	junit := flags.String("junit", "", "test: file for a report in the form of JUnit")
	limit := flags.Duration(strings.TrimPrefix(tests.LimitName, "--"), 10*time.Minute,
		"test: time limit of the service's start, and of each command, pytest and go test")
	return appStep{name: "test", short: "run the tests of the application against a service on a free port",
		flags: slices.Concat(buildFlags, []string{"allow-network"}), takesArgs: true,
		run: func(c *appCall) (any, error) { return c.test(*junit, *limit) }}
}

// appTestResult is what test prints as JSON.
type appTestResult struct {
	Command string         `json:"command"`
	Passed  bool           `json:"passed"`
	Suites  []*tests.Suite `json:"suites"`
}

func (c *appCall) test(junit string, limit time.Duration) (*appTestResult, error) {
	if limit <= 0 {
		return nil, usagef("%s: %s is not a duration above 0", tests.LimitName, limit)
	}
	bo, err := c.buildOptions()
	if err != nil {
		return nil, err
	}
	bo.Rebuild, bo.Relock = false, false
	app, release, err := c.use()
	if err != nil {
		return nil, err
	}
	defer release()
	needs, err := c.needs(app)
	if err != nil {
		return nil, err
	}
	if !tests.Found(app, needs) {
		return nil, fmt.Errorf("%s has no tests: write commands into application.test of the configuration file, "+
			"tests for pytest or Go into the folder tests, or leave the command out", app.Name)
	}
	if err := c.adopt(); err != nil {
		return nil, err
	}
	bar := newProgress(c.ErrOrStderr())
	defer bar.end()
	show := func(step, line string) {
		if bar.overwrite {
			bar.line(clipLine(step + ": " + line))
		}
	}
	bo.OnLine = show
	env, releaseEnvironment, err := c.testEnvironment(app, needs, bo)
	if err != nil {
		return nil, err
	}
	defer releaseEnvironment()
	s, err := c.startService(app, bo.Pass, bo.Network, limit)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	suites, err := tests.Run(c.Context(), app, needs, tests.Options{Environment: env, Env: s.env, Ports: s.ports,
		Network: bo.Network, Pass: bo.Pass, Limit: limit, Limits: bo.Limits, OnLine: show})
	if err != nil {
		return nil, err
	}
	bar.end()
	return c.report(suites, s, junit)
}

// report prints the results, and writes the report. The error is that of tests that have failed.
func (c *appCall) report(suites []*tests.Suite, s *service, junit string) (*appTestResult, error) {
	if junit != "" {
		if err := tests.WriteJUnit(junit, suites); err != nil {
			return nil, fmt.Errorf("--junit: %w", err)
		}
	}
	r := &appTestResult{Command: "test", Passed: true, Suites: suites}
	failed := 0
	for _, suite := range suites {
		c.print("%s", suite.Summary())
		if suite.Failed > 0 {
			failed += suite.Failed
			_, _ = fmt.Fprintf(c.ErrOrStderr(), "%s:\n%s\n", suite.Name, strings.TrimRight(suite.Output, "\n"))
		}
	}
	if failed == 0 {
		return r, nil
	}
	r.Passed = false
	if log := s.log(); log != "" {
		_, _ = fmt.Fprintf(c.ErrOrStderr(), "the log of the service:\n%s", log)
	}
	if c.json {
		if err := writeJSON(c.OutOrStdout(), r); err != nil {
			return nil, err
		}
	}
	return nil, errors.New(quantity(failed, "test has failed", "tests have failed"))
}

// testEnvironment returns the environment of tests: with tests/requirements.txt, a further environment, which is built
// first.
func (c *appCall) testEnvironment(app *apps.App, needs *apps.Needs, o build.Options) (*build.Environment, func(),
	error) {
	of := build.ForTests(app, needs)
	if of != needs {
		if _, err := build.Build(c.Context(), app, of, o); err != nil {
			return nil, func() {}, err
		}
	}
	return build.Open(app, of, c.options.Dir)
}

// service is a server that runs the application for tests.
type service struct {
	child *child.Process
	env   []string // of tests
	ports []uint16

	mu    sync.Mutex
	lines []string // the end of the log
}

// maxLog is the greatest number of lines of a service's log in a message.
const maxLog = 60

func (s *service) line(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lines = append(s.lines, text); len(s.lines) > maxLog {
		s.lines = s.lines[1:]
	}
}

func (s *service) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lines) == 0 {
		return ""
	}
	return "  " + strings.Join(s.lines, "\n  ") + "\n"
}

func (s *service) stop() { _ = s.child.Stop(10 * time.Second) }

// testSettings returns variables that take the place of settings in the application's file. Such settings would give
// more access to code of the application than the caller has given, or would let the server itself run the code.
// Flags behind -- take the place of the variables.
func testSettings(network bool) []string {
	env := []string{"MILLRACE_CONFINE_PROGRAMS=require", "MILLRACE_SANDBOX=auto",
		"MILLRACE_CONFINE_NETWORK=" + strconv.FormatBool(network)}
	for _, name := range []string{"CONFINE_READ", "CONFINE_WRITE", "CONTAINERS_HOST", "CONTAINERS_IMAGES",
		"ONNX_LIBRARY", "ONNX_PROGRAM", "AUTH_MODULE", "AUTH_PYTHON"} {
		env = append(env, "MILLRACE_"+name+"=")
	}
	return env
}

// read reads the output of the service to the end, and sends the addresses of a ready service. A long line arrives in
// pieces.
func (s *service) read(from io.Reader, ready chan<- string) {
	r := bufio.NewReaderSize(from, 64<<10)
	for sent := false; ; {
		part, err := r.ReadSlice('\n')
		text := strings.TrimRight(string(part), "\r\n")
		if line, is := strings.CutPrefix(text, "millrace is ready: "); is && !sent {
			ready <- line
			sent = true
		} else if text != "" {
			s.line(text)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// startService starts the application as run does, on a free port and with a new key, and confines its programs.
func (c *appCall) startService(app *apps.App, pass []string, network bool, limit time.Duration) (*service, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"app", "--config", c.Flags().Lookup("config").Value.String(), "run", "--"}
	if app.Format == apps.Millrace.Name {
		args = append(args, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
	} else {
		args = append(args, "--host", "127.0.0.1", "--port", "0")
	}
	key := rand.Text()
	env := append(testSettings(network), "MILLRACE_API_KEY="+key)
	for _, name := range append([]string{"PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "TMPDIR",
		"XDG_CACHE_HOME"}, pass...) {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	s := &service{}
	s.child, err = child.Start(c.Context(), child.Spec{Path: program, Args: append(args, c.args...), Env: env,
		OnStderr: func(line []byte) { s.line(string(line)) }})
	if err != nil {
		return nil, err
	}
	ready := make(chan string, 1)
	go func() {
		defer close(ready)
		s.read(s.child.Stdout, ready)
	}()
	ctx, cancel := context.WithTimeout(c.Context(), limit)
	defer cancel()
	select {
	case line, ok := <-ready:
		if err = s.addresses(line, key); !ok {
			err = fmt.Errorf("the service has not started: %w", s.child.Stop(10*time.Second))
		}
	case <-ctx.Done():
		if err = context.Cause(c.Context()); err == nil {
			err = fmt.Errorf("the service is not ready after %s: look into its log, or raise %s", limit,
				tests.LimitName)
		}
	}
	if err != nil {
		s.stop()
		if log := s.log(); log != "" {
			err = fmt.Errorf("%w\n%s", err, strings.TrimRight(log, "\n"))
		}
		return nil, err
	}
	return s, nil
}

// addresses reads the line of a ready server.
func (s *service) addresses(line, key string) error {
	s.env = []string{config.EnvToken + "=" + key}
	for _, text := range strings.Fields(line) {
		u, err := url.Parse(text)
		if err != nil {
			continue
		}
		name, value := envGRPC, u.Host
		if strings.HasPrefix(u.Scheme, "http") {
			name, value = config.EnvAddr, text
		}
		if !slices.ContainsFunc(s.env, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
			s.env = append(s.env, name+"="+value) // the first is for clients of models
		}
		if port, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
			s.ports = append(s.ports, uint16(port))
		}
	}
	if len(s.ports) == 0 {
		return errors.New("the service has no address that tests can reach: " + filepath.Base(line))
	}
	return nil
}
