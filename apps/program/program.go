// Package program runs the programs of an application's steps: installers, hooks and tests. A program is confined,
// gets few variables, and has limits of time, memory, disk and processes.
//
// The package owns the access and the variables of these programs. The package must not know the purpose of a program.
package program

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"millrace/internal/child"
	"millrace/internal/confine"
	"millrace/internal/scratch"
)

const (
	maxFiles = 4096      // open at once
	maxTail  = 256 << 10 // bytes of output kept
	maxLine  = 16 << 10
	grace    = 5 * time.Second // between SIGTERM and SIGKILL at the time limit
)

// variables are the variables of this process that programs get, besides Program.Pass. They hold no secrets.
var variables = []string{"PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "SSL_CERT_FILE",
	"SSL_CERT_DIR"}

// release are files that describe the system. pip does not start where they exist and cannot be read.
var release = []string{"/etc/debian_version", "/etc/os-release", "/etc/lsb-release"}

// Program is a program to run.
type Program struct {
	Args  []string // the program and its arguments
	Dir   string   // working folder
	Stdin []byte
	// Read and Write are files, and folders with their contents, that the program may read, or read and change,
	// besides the system's files and a folder for temporary files.
	Read, Write []string
	Network     bool     // the whole network
	Connect     []uint16 // without Network, TCP ports to connect to
	Bin         string   // a folder in front of PATH; "" = none
	Env         []string // further variables, as NAME=value
	Pass        []string // names of further variables of this process
	Limit       time.Duration
	LimitName   string // the setting of Limit, for errors
	Limits      Limits
	OnLine      func(line string) // called with each line of output; nil = none; calls do not overlap
}

// Check returns an error if programs cannot be confined on this machine.
func Check() error {
	if err := child.SandboxError(); err != nil {
		return fmt.Errorf("code of an application runs only confined, and this machine cannot confine it: %w", err)
	}
	return nil
}

// Installation returns the files of an installed program such as an interpreter, for Program.Read.
func Installation(path string) []string { return confine.Installation(path) }

// CheckPass refuses names of variables that no program gets.
func CheckPass(names []string) error {
	for _, name := range names {
		switch {
		case name == "" || strings.ContainsAny(name, "= "):
			return fmt.Errorf("%q is no name of a variable", name)
		case strings.HasPrefix(name, "MILLRACE_"):
			return fmt.Errorf("%s is a variable of the server, which no code of an application gets", name)
		}
		if _, ok := os.LookupEnv(name); !ok {
			return fmt.Errorf("the variable %s is not set", name)
		}
	}
	return nil
}

// Error is the failure of a program.
type Error struct {
	Name   string // of the program
	Output string // the end of the output
	Err    error  // the reason
	Hint   string // what to do; "" = nothing
}

// shown is the greatest number of lines in a message.
const shown = 15

func (e *Error) Error() string {
	lines := strings.FieldsFunc(e.Output, func(r rune) bool { return r == '\n' || r == '\r' })
	text := e.Name + ": " + reason(e.Err)
	if len(lines) > 0 {
		text += ":\n  " + strings.Join(lines[max(0, len(lines)-shown):], "\n  ")
	}
	if e.Hint != "" {
		text += "\n(" + e.Hint + ")"
	}
	return text
}

func reason(err error) string {
	if exit := (*child.ExitError)(nil); errors.As(err, &exit) {
		return exit.Description()
	}
	return err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Run runs the program to its end, and returns the end of its output. Errors: *Error.
func (p *Program) Run(ctx context.Context) (string, error) {
	out := &output{onLine: p.OnLine}
	err := p.run(ctx, out)
	if err == nil {
		return out.String(), nil
	}
	return out.String(), &Error{Name: filepath.Base(p.Args[0]), Output: out.String(), Err: err,
		Hint: p.Limits.orDefaults().hint(err, out.String())}
}

func (p *Program) run(ctx context.Context, out *output) error {
	if err := Check(); err != nil {
		return err
	}
	home, err := scratch.Make(scratch.Child)
	if err != nil {
		return err
	}
	defer func() { _ = home.Remove() }()
	if err := os.Mkdir(temporary(home.Path), 0o700); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, p.Limit)
	defer cancel()
	spec := child.Spec{Path: p.Args[0], Args: p.Args[1:], Dir: p.Dir, Env: p.environ(home.Path), Grace: grace,
		Stdin: p.Stdin != nil, OnStderr: func(line []byte) { out.line(string(line)) }}
	access := &confine.Programs{Network: p.Network, Files: maxFiles, Read: append(slices.Clip(p.Read), release...),
		Write: append(slices.Clip(p.Write), home.Path)}
	access.Apply(&spec)
	spec.Temp = false // a folder in home, which is looked at
	limits := p.Limits.orDefaults()
	limits.apply(&spec.Limits)
	w := newWatch(limits, append(slices.Clip(p.Write), home.Path))
	spec.Contained, spec.Sandbox.SmallSegments = true, true
	if !p.Network {
		spec.Sandbox.Connect = p.Connect
		if len(p.Connect) > 0 {
			spec.Sandbox.Read = append(spec.Sandbox.Read, confine.ResolverFiles()...)
		}
	}
	process, err := child.Start(limited, spec)
	if err != nil {
		return err
	}
	defer func() { _ = process.Stop(0) }()
	read := make(chan struct{})
	go func() {
		defer close(read)
		out.lines(process.Stdout)
	}()
	var over error
	looking, enough := context.WithCancel(limited)
	var look sync.WaitGroup
	look.Go(func() {
		if over = w.run(looking, process); over != nil {
			_ = process.Signal(syscall.SIGKILL)
		}
	})
	if p.Stdin != nil {
		_ = process.Write(p.Stdin) // a program need not read it
		_ = process.Stdin.Close()
	}
	err = process.Wait()
	enough()
	look.Wait()
	_ = process.Stdout.SetReadDeadline(time.Now().Add(time.Second)) // a process that has left the group may hold it
	<-read
	if n := process.Left(); n > 0 {
		return leftError(n)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if limited.Err() != nil {
		return fmt.Errorf("takes longer than %s: look for a hanging program, or raise %s", p.Limit, p.LimitName)
	}
	if over == nil && w.full(0) {
		over = w.diskError()
	}
	return cmp.Or(over, err)
}

// temporary returns the folder for temporary files.
func temporary(home string) string { return filepath.Join(home, "tmp") }

// environ returns the variables of the program.
func (p *Program) environ(home string) []string {
	env := []string{"HOME=" + home, "TMPDIR=" + temporary(home), "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1"}
	for _, name := range slices.Concat(variables, p.Pass) {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	if p.Bin != "" {
		env = append(env, "PATH="+p.Bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	}
	return append(env, p.Env...)
}

// output keeps the end of a program's output.
type output struct {
	onLine func(string)
	mu     sync.Mutex
	text   []byte
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

func (o *output) line(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(append(o.text, text...), '\n')
	if over := len(o.text) - maxTail; over > 0 {
		o.text = append(o.text[:0], o.text[over:]...)
	}
	if o.onLine != nil {
		o.onLine(text)
	}
}

// lines reads lines to the end. A longer line than maxLine arrives in pieces.
func (o *output) lines(r io.Reader) {
	b := bufio.NewReaderSize(r, maxLine)
	for {
		part, err := b.ReadSlice('\n')
		if text := bytes.TrimRight(part, "\r\n"); len(text) > 0 {
			o.line(string(text))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}
