package access

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"millrace/internal/child"
	files "millrace/python"
	"millrace/stream"
)

// moduleScript is the file of the Python package that calls the function of a module.
const moduleScript = "millrace/_users.py"

const (
	moduleStart = 30 * time.Second // for the interpreter and the module's imports
	moduleCall  = 10 * time.Second // for a call of the module's function
	maxAnswer   = 64 << 10         // bytes of a line from the child
)

// Module is a file in Python with the function authenticate_user(username, password), which returns the user's id, or
// None. The module runs in a child process, one call at a time. Module is safe for concurrent use.
type Module struct {
	o    ModuleOptions
	turn chan struct{} // held by the user of the fields below
	proc *child.Process
	in   *bufio.Reader
}

// ModuleOptions configure OpenModule.
type ModuleOptions struct {
	Python string   // the interpreter
	File   string   // the module
	Env    []string // of the child
	Log    *slog.Logger
}

// OpenModule starts the child, so that errors of the module are returned at once. When the child ends later, or does
// not answer in time, the next call starts another.
func OpenModule(ctx context.Context, o ModuleOptions) (*Module, error) {
	m := &Module{o: o, turn: make(chan struct{}, 1)}
	m.turn <- struct{}{}
	if err := m.start(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

// moduleAnswer is a line from the child.
type moduleAnswer struct {
	User  *string `json:"user"`
	Error string  `json:"error"`
}

// start starts the child and waits until the child has loaded the module.
func (m *Module) start(ctx context.Context) error {
	dir, err := files.Unpack("")
	if err != nil {
		return err
	}
	proc, err := child.Start(context.Background(), child.Spec{
		Path: m.o.Python, Args: []string{"-u", "-B", filepath.Join(dir, filepath.FromSlash(moduleScript)), m.o.File},
		Env: m.o.Env, Stdin: true,
		OnStderr: func(line []byte) { m.o.Log.Info(string(line), "setting", "auth.module") },
	})
	if err != nil {
		return err
	}
	m.proc, m.in = proc, bufio.NewReaderSize(proc.Stdout, maxAnswer)
	a, err := m.answer(ctx, moduleStart)
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	if err != nil {
		m.stop()
		return err
	}
	return nil
}

// answer reads the next line of the child.
func (m *Module) answer(ctx context.Context, within time.Duration) (a moduleAnswer, err error) {
	_ = m.proc.Stdout.SetReadDeadline(time.Now().Add(within))
	stop := context.AfterFunc(ctx, func() { _ = m.proc.Stdout.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := m.in.ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	if err != nil {
		return a, fmt.Errorf("%s did not answer: %w", m.o.File, err)
	}
	return a, nil
}

func (m *Module) stop() {
	_ = m.proc.Stop(0)
	m.proc = nil
}

// Authenticate returns the module's user id for a name and a password; "" for None.
func (m *Module) Authenticate(ctx context.Context, name, password string) (string, error) {
	if err := context.Cause(ctx); err != nil {
		return "", err
	}
	select {
	case <-m.turn:
	case <-ctx.Done():
		return "", stream.Errorf(stream.Timeout, "", "other logins are being checked: try again later")
	}
	defer func() { m.turn <- struct{}{} }()
	if m.proc == nil {
		if err := m.start(ctx); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]string{"username": name, "password": password})
	if err != nil {
		return "", err
	}
	_ = m.proc.Stdin.SetWriteDeadline(time.Now().Add(moduleCall))
	var a moduleAnswer
	if _, err = m.proc.Stdin.Write(append(text, '\n')); err == nil {
		a, err = m.answer(ctx, moduleCall)
	}
	switch {
	case err != nil:
		m.stop() // a late answer would be taken for the answer of another call
		return "", err
	case a.Error != "":
		return "", errors.New(a.Error)
	case a.User == nil:
		return "", nil
	}
	if err := CheckName(*a.User); err != nil {
		return "", fmt.Errorf("authenticate_user of %s returned a user id that cannot be used: %w", m.o.File, err)
	}
	return *a.User, nil
}

// Close ends the child, after the answer to a call in progress.
func (m *Module) Close() {
	<-m.turn
	defer func() { m.turn <- struct{}{} }()
	if m.proc != nil {
		m.stop()
	}
}
