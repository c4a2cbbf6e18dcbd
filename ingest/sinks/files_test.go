//go:build unix

package sinks

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"millrace/stream"
)

// newFiles opens a new folder with a limit of most bytes for the files of a client.
func newFiles(t *testing.T, most int64) (files *Files, folder string) {
	t.Helper()
	folder = t.TempDir()
	files, err := OpenFiles(folder, most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(files.Close)
	return files, folder
}

// made makes a client's file and opens a sink for the file.
func made(t *testing.T, files *Files, name string, client any) Sink {
	t.Helper()
	c := &File{Path: name, MaxSize: fileCost}
	if _, err := files.Make(c, client, false); err != nil {
		t.Fatal(err)
	}
	return Open(c, Env{Stream: "door", Requested: true, Files: files, Log: slog.New(slog.DiscardHandler)})
}

func remove(t *testing.T, folder, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(folder, name)); err != nil {
		t.Fatal(err)
	}
}

// While a stream has a file, no other stream can have the file, even after an operator has removed the file from the
// folder. After the end of the stream, the name is free.
func TestRemovedFileOfStream(t *testing.T) {
	files, folder := newFiles(t, 1<<20)
	c := &File{Path: "door.jsonl", MaxSize: fileCost}
	undo, err := files.Make(c, "first", false)
	if err != nil {
		t.Fatal(err)
	}
	remove(t, folder, c.Path)
	if _, err := files.Make(c, "second", false); stream.CodeOf(err) != stream.Conflict {
		t.Errorf("before the sink of the file is open: %v", err)
	}
	undo()
	sink := made(t, files, c.Path, "first")
	remove(t, folder, c.Path)
	if _, err := files.Make(c, "second", false); stream.CodeOf(err) != stream.Conflict {
		t.Errorf("while the sink of the file is open: %v", err)
	}
	sink.Write([]byte("{}"))
	contents(t, filepath.Join(folder, c.Path), "{}\n")
	sink.Close()
	remove(t, folder, c.Path)
	undo, err = files.Make(c, "second", false)
	if err != nil {
		t.Fatal(err)
	}
	undo()
	if n := len(files.owners); n != 0 {
		t.Errorf("%d owners of no file", n)
	}
}

// Owners of files that no stream has and that are missing in the folder are forgotten. Other files still count only
// for their clients.
func TestOwnersOfRemovedFiles(t *testing.T) {
	const of = (keepFiles + 1) * fileCost // of a written file
	files, folder := newFiles(t, of+fileCost)
	made(t, files, "kept.jsonl", "first").Close()
	for i := range 20 {
		name := fmt.Sprintf("%d.jsonl", i)
		made(t, files, name, "first").Close()
		remove(t, folder, name)
		if n := len(files.owners); n != 2 {
			t.Fatalf("%d owners of 2 files", n)
		}
	}
	if used, err := files.used("first", ""); used != fileCost || err != nil {
		t.Errorf("the client has %d bytes, %v", used, err)
	}
	if used, err := files.used("second", ""); used != 0 || err != nil {
		t.Errorf("another client has %d bytes, %v", used, err)
	}
	// The old files of a file count, too.
	if err := os.Rename(filepath.Join(folder, "kept.jsonl"), filepath.Join(folder, "kept.jsonl.2")); err != nil {
		t.Fatal(err)
	}
	if used, err := files.used("second", ""); used != 0 || err != nil || len(files.owners) != 1 {
		t.Errorf("another client has %d bytes, %v; there are %d owners", used, err, len(files.owners))
	}
}
