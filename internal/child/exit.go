package child

import (
	"fmt"
	"os"
	"syscall"
)

// ExitError describes the end of a child with a status other than 0.
type ExitError struct {
	// Name is the program as given in Spec.Path.
	Name string
	// Code is the exit status, or -1 when a signal ended the child or the status is unknown.
	Code int
	// Signal is the signal that ended the child, or 0.
	Signal syscall.Signal
	// Stopped is true when Stop or the end of the context stopped the child.
	Stopped bool
	// LastLines are the last lines of standard error, at most three, joined by " | ". The lines often contain the
	// reason.
	LastLines string
	// Err is set when waiting itself failed.
	Err error
}

func (e *ExitError) Error() string {
	if e.LastLines == "" {
		return e.Name + ": " + e.Description()
	}
	return e.Name + ": " + e.Description() + ": " + e.LastLines
}

// Description describes the end of the child, without the child's output.
func (e *ExitError) Description() string {
	switch {
	case e.Err != nil:
		return "waiting failed: " + e.Err.Error()
	case e.Signal != 0 && e.Stopped:
		return "stopped (" + e.Signal.String() + ")"
	case e.Signal != 0:
		return fmt.Sprintf("ended by signal %d (%s)", int(e.Signal), e.Signal)
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

func (e *ExitError) Unwrap() error { return e.Err }

// exitError returns nil for exit status 0, else an *ExitError.
func exitError(name string, state *os.ProcessState, err error, stopped bool, stderr *tail) error {
	if err == nil && state.Success() {
		return nil
	}
	e := &ExitError{Name: name, Code: -1, Stopped: stopped, LastLines: lastLines(stderr.String(), 3), Err: err}
	if err != nil {
		return e
	}
	e.Code = state.ExitCode()
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal = ws.Signal()
	}
	return e
}
