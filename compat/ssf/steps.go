package ssf

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/compat/style"
	"millrace/config"
	"millrace/internal/child"
	"millrace/python"
)

// runStep runs a step of the application, build or test, by the code that serves applications. env are further
// variables.
func (a *application) runStep(c *style.Call, o *Options, step string, steps, env []string) error {
	interpreter := "python3"
	if a.venv != "" {
		interpreter = filepath.Join(a.venv, "bin", "python")
	}
	dir, err := python.Unpack("")
	if err != nil {
		return err
	}
	in, err := json.Marshal(map[string]any{"config": a.config, "file": a.file, "args": o.Values(), "steps": steps,
		"records": o.log != nil})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(c.Context, interpreter, pythonArgs(dir, step)[1:]...)
	lines := &stepLines{log: o.log, rest: c.Err}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), c.Out, lines
	cmd.Env = append(append(config.WithoutSecrets(os.Environ()), "PYTHONDONTWRITEBYTECODE=1"), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var exit *exec.ExitError
	err = cmd.Run()
	lines.flush()
	switch {
	case errors.As(err, &exit) && exit.Exited():
		return style.StatusError{
			Err:    fmt.Errorf("%s: ended with the result code %d", strings.Join(steps, " "), exit.ExitCode()),
			Status: exit.ExitCode(),
		}
	case err != nil:
		return fmt.Errorf("%s: %w", strings.Join(steps, " "), err)
	}
	return nil
}

// fails returns the error of a step with the exit status of Simple Server Framework.
func fails(status int, step, format string, args ...any) error {
	return style.StatusError{Status: status, Err: fmt.Errorf(step+": "+format, args...)}
}

// appArgs returns the arguments of millrace app for the application.
func (a *application) appArgs(args ...string) []string {
	return append([]string{"--config", filepath.Dir(a.file) + "|" + filepath.Base(a.file)}, args...)
}

// image returns the name of the image, from --package-tag or the configuration; "" = the default of millrace app.
func (a *application) image(o *Options) string {
	if o.PackageTag != "" {
		return expand(o.PackageTag, a.config)
	}
	app, _ := a.config.Get("application").(Section)
	section, _ := app.Get("package").(Section)
	if tag := section.Get("tag"); tag != nil {
		return expand(fmt.Sprint(tag), a.config)
	}
	return ""
}

// registry begins the name of an image that names its registry.
var registry = regexp.MustCompile(`^(localhost|[^/]*[.:][^/]*)/`)

// pack packs the application as an image.
func (a *application) pack(c *style.Call, o *Options) error {
	o.log.print(slog.LevelInfo, "> ==== Package ====")
	if o.ModifyConfig != "" {
		return fails(packagingStatus, "package", "--modify-config: an image has the configuration of the file: change "+
			"the file")
	}
	app, _ := a.config.Get("application").(Section)
	section, _ := app.Get("package").(Section)
	if docker, _ := section.Get("docker").(Section); docker.Get("run") != nil && docker.Get("run") != "" {
		return fails(packagingStatus, "package", "application.package.docker.run: commands of Docker are not run: "+
			"make an image with their result, and name it in --package-baseimage")
	}
	n, err := needs(a.file)
	if err != nil {
		return fails(packagingStatus, "package", "%w", err)
	}
	for _, field := range []string{"inclusions", "exclusions"} {
		if err := a.warnUnmatched(o, field, section.Get(field)); err != nil {
			return fails(packagingStatus, "package", "%w", err)
		}
	}
	args := a.appArgs("package")
	switch {
	case a.venv != "":
		args = append(args, "--environment", a.venv)
	case len(n.Packages) > 0 || len(n.Requirements) > 0:
		return fails(packagingStatus, "package", "application.dependencies.python: the packages are not installed: "+
			"make the environment ssf-%s-venv, as the command build says", a.id)
	default:
		args = append(args, "--python", "python3")
	}
	if name := a.image(o); name != "" {
		if !registry.MatchString(name) {
			name = "localhost/" + name
		}
		args = append(args, "--image", name)
	}
	if o.PackageBaseimage != "" {
		args = append(args, "--base", o.PackageBaseimage)
	}
	if err := c.App(args); err != nil {
		return style.StatusError{Err: err, Status: packagingStatus}
	}
	return nil
}

// warnUnmatched logs the patterns of a field that no file of the application matches.
func (a *application) warnUnmatched(o *Options, field string, value any) error {
	globs, err := texts(value, "\n")
	if err != nil {
		return fmt.Errorf("application.package.%s: %w", field, err)
	}
	dir := filepath.Dir(a.file)
	for _, glob := range globs {
		p, err := globPattern(glob)
		if err != nil {
			return fmt.Errorf("application.package.%s: %q is no pattern of files", field, glob)
		}
		errFound := errors.New("found")
		err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if name, err := filepath.Rel(dir, path); err == nil && p.MatchString(filepath.ToSlash(name)) {
				return errFound
			}
			return nil
		})
		if err == nil {
			o.log.print(slog.LevelWarn, "No matching files found for %s '%s'", field, glob)
		} else if !errors.Is(err, errFound) {
			return err
		}
	}
	return nil
}

// setVariable sets a variable with a secret, for a call of millrace app, until unset is called.
func setVariable(name, value string) (unset func(), err error) {
	return func() { _ = os.Unsetenv(name) }, os.Setenv(name, value)
}

// publish pushes the image to its registry.
func (a *application) publish(c *style.Call, o *Options) error {
	o.log.print(slog.LevelInfo, "> ==== Publish ====")
	name := a.image(o)
	if !registry.MatchString(name) {
		return fails(registryStatus, "publish", "Push %s errored: --package-tag: name the registry, such as "+
			"docker.io/%s", name, name)
	}
	args := a.appArgs("publish", "--image", name)
	if o.DockerUsername != "" {
		const variable = "MILLRACE_SSF_PASSWORD"
		unset, err := setVariable(variable, o.DockerPassword)
		if err != nil {
			return err
		}
		defer unset()
		args = append(args, "--registry-user", o.DockerUsername, "--registry-password", variable)
	}
	if err := c.App(args); err != nil {
		return fails(registryStatus, "publish", "Push %s errored: %w", name, err)
	}
	return nil
}

// deploy runs the image of package on a host over SSH, as --deploy-platform Gcore does.
func (a *application) deploy(c *style.Call, o *Options) error {
	o.log.print(slog.LevelInfo, "> ==== Deploy ====")
	if o.DeployAddress == "" {
		return fails(deployStatus, "deploy", "Target address must be specified: --deploy-gcore-target-address")
	}
	target := o.DeployAddress
	if o.DeployUsername != "" {
		target = o.DeployUsername + "@" + target
	}
	args := a.appArgs("deploy", "--target", target, "--http", net.JoinHostPort(o.Host, strconv.Itoa(o.Port)), "--grpc",
		"off")
	if name := a.image(o); registry.MatchString(name) {
		args = append(args, "--image", name)
	}
	if o.Key != "" {
		const variable = "MILLRACE_SSF_KEY"
		unset, err := setVariable(variable, o.Key)
		if err != nil {
			return err
		}
		defer unset()
		args = append(args, "--secret", "MILLRACE_API_KEY:"+variable)
	}
	for variable, key := range o.sshKeys { // source.FromEnv has removed the variables
		unset, err := setVariable(variable, key)
		if err != nil {
			return err
		}
		defer unset()
		args = append(args, "--add-ssh-key", variable+":"+variable)
	}
	if err := c.App(args); err != nil {
		return style.StatusError{Err: err, Status: deployStatus}
	}
	return nil
}

// test runs the application's own tests against a server, which is started unless --test-skip-start is given.
func (a *application) test(c *style.Call, o *Options) error {
	o.log.print(slog.LevelInfo, "> ==== Test ====")
	address := "http://" + net.JoinHostPort(o.Host, strconv.Itoa(o.Port))
	if !o.TestSkipStart {
		var stop func()
		var err error
		if address, stop, err = a.startTested(c, o); err != nil {
			return err
		}
		defer stop()
	}
	return a.runStep(c, o, "test", []string{"test"}, []string{config.EnvAddr + "=" + address,
		config.EnvToken + "=" + o.Key})
}

// startTested starts the server for the tests with the options of this command, and waits until the server is ready.
func (a *application) startTested(c *style.Call, o *Options) (address string, stop func(), err error) {
	program, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	args := slices.Concat([]string{"ssf"}, o.Words.Flags, o.Unknown, []string{"run"})
	p, err := child.Start(c.Context, child.Spec{Path: program, Args: args, Env: append(os.Environ(), envFormat+"=text"),
		OnStderr: func(line []byte) { o.log.note(slog.LevelInfo, "server: %s", line) }})
	if err != nil {
		return "", nil, err
	}
	stop = func() { _ = p.Stop(10 * time.Second) }
	ready := make(chan string, 1)
	go func() {
		defer close(ready)
		for lines := bufio.NewScanner(p.Stdout); lines.Scan(); {
			if line, is := strings.CutPrefix(lines.Text(), "millrace is ready: "); is {
				ready <- line
				break
			}
		}
		_, _ = io.Copy(io.Discard, p.Stdout) // a server whose output nobody reads waits
	}()
	ctx, cancel := context.WithTimeout(c.Context, a.start)
	defer cancel()
	select {
	case line, ok := <-ready:
		for _, text := range strings.Fields(line) {
			if u, err := url.Parse(text); ok && err == nil && u.Host != "" {
				return text, stop, nil
			}
		}
		err = errors.New("the server has not started: see " + logFile)
	case <-ctx.Done():
		err = fmt.Errorf("the server is not ready after %v: %w", a.start, context.Cause(ctx))
	}
	stop()
	return "", nil, fails(testStatus, "test", "%w", err)
}
