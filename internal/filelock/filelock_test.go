package filelock

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestLocks: an exclusive lock excludes every other lock, and shared locks exclude exclusive locks only.
func TestLocks(t *testing.T) {
	folder := t.TempDir()
	first, second, third := open(t, folder), open(t, folder), open(t, folder)
	if err := TryLock(first); err != nil {
		t.Fatal(err)
	}
	if err := TryLock(second); !errors.Is(err, ErrLocked) {
		t.Errorf("a second exclusive lock: %v", err)
	}
	if err := TryShare(second); !errors.Is(err, ErrLocked) {
		t.Errorf("a shared lock beside an exclusive lock: %v", err)
	}
	if err := Close(first); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(TryShare(second), TryShare(third)); err != nil {
		t.Errorf("two shared locks: %v", err)
	}
	if err := TryLock(open(t, folder)); !errors.Is(err, ErrLocked) {
		t.Errorf("an exclusive lock beside shared locks: %v", err)
	}
}

// TestCloseUnlocksCopies: Close unlocks the file while a copy of the descriptor is open, as in a child process whose
// program has not yet begun.
func TestCloseUnlocksCopies(t *testing.T) {
	folder := t.TempDir()
	f := open(t, folder)
	if err := Lock(f); err != nil {
		t.Fatal(err)
	}
	descriptor, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(descriptor) }()
	if err := Close(f); err != nil {
		t.Fatal(err)
	}
	if err := TryLock(open(t, folder)); err != nil {
		t.Error(err)
	}
}
