package tracing

import (
	"log/slog"
	"os"
	"sync"

	"millrace/stream"
)

// LogFile is the file of a log. It can be opened again, so that the log
// can be rotated: rename the file, then call Reopen. All its methods are
// safe for concurrent use, and those of a nil LogFile do nothing.
type LogFile struct {
	path    string
	setting string // for errors
	mode    os.FileMode

	mu sync.Mutex
	f  *os.File
}

func openLogFile(path string) (*LogFile, error) {
	return openFile(&LogFile{path: path, setting: "log.file", mode: 0o640})
}

// NewAuditLog returns a log whose lines are JSON, in a file that only its owner may read and write.
func NewAuditLog(path string) (*slog.Logger, *LogFile, error) {
	file, err := openFile(&LogFile{path: path, setting: "audit", mode: 0o600})
	if err != nil {
		return nil, nil, err
	}
	return slog.New(slog.NewJSONHandler(controls{file}, nil)), file, nil
}

func openFile(l *LogFile) (*LogFile, error) {
	if err := l.Reopen(); err != nil {
		return nil, err
	}
	return l, nil
}

// Reopen opens the path again. After an error the log continues in the file that
// was open.
func (l *LogFile) Reopen() error {
	if l == nil {
		return nil
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, l.mode)
	if err != nil {
		return stream.Errorf(stream.InvalidArgument, l.setting, "%w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.f
	l.f = f
	_ = old.Close() // nothing is buffered; at first there is none
	return nil
}

// Write appends to the file.
func (l *LogFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Write(b)
}

// Close closes the file.
func (l *LogFile) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}
