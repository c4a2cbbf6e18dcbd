package tracing

import (
	"log/slog"
	"os"
	"sync"

	"millrace/stream"
)

// LogFile is the file of a log, with support for rotation: rename the file, then call Reopen. All methods are safe
// for concurrent use, and do nothing on a nil LogFile.
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

// NewAuditLog returns a log of JSON lines, in a file readable and writable only by its owner.
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

// Reopen opens the path again. After an error the log continues in the old file.
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
	_ = old.Close() // nothing is buffered; old may be nil
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
