package clips

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func all(*Clip) bool { return true }

// quiet are the options of a store that only reads a folder.
func quiet(folder string) Options {
	return Options{Folder: folder, MaxBytes: 1 << 30, Memory: 1, Log: slog.New(slog.DiscardHandler)}
}

// A second server on a folder is refused before it changes clips that are being written.
func TestSecondServer(t *testing.T) {
	r := newRig(t, Options{}, Settings{On: []string{Always}})
	r.play(1, 0, 15)
	refused := func() {
		t.Helper()
		if _, err := Open(quiet(r.folder)); err == nil || !strings.Contains(err.Error(),
			"another process uses the folder of clips "+r.folder) {
			t.Error(err)
		}
	}
	refused()
	r.Lost(CutReconnected)
	r.writes.Wait()
	if err := os.RemoveAll(r.folder); err != nil {
		t.Fatal(err)
	}
	r.play(1, 0, 15) // the folder is made again
	r.Close()
	r.writes.Wait()
	refused()
	for _, want := range []Cut{CutReconnected, CutStopped} {
		if c := <-r.made; c.Cut != want || c.Frames != 15 {
			t.Errorf("%+v", c)
		}
	}
	r.store.Close()
	s, err := Open(quiet(r.folder))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// Files of clips without a description are removed at the start, and a file by another name stays.
func TestRemains(t *testing.T) {
	dir := t.TempDir()
	day := filepath.Join(dir, "2026-11-30", "gate")
	if err := os.MkdirAll(day, 0o700); err != nil {
		t.Fatal(err)
	}
	const damaged, gone, foreign = "101112-ABCDEFGHIJ", "101113-ABCDEFGHIJ", "holiday"
	for _, name := range []string{damaged + ".json", damaged + ".json.new", damaged + ".mp4", gone + ".mp4",
		gone + ".boxes.jsonl", gone + ".1.jpg", gone + ".1.boxes.jpg", gone + ".json.new", foreign + ".mp4"} {
		if err := os.WriteFile(filepath.Join(day, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log strings.Builder
	o := quiet(dir)
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	list, err := os.ReadDir(day)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range list {
		left = append(left, e.Name())
	}
	if got, want := strings.Join(left, " "), damaged+".json "+damaged+".mp4 "+foreign+".mp4"; got != want {
		t.Errorf("left: %s; want %s", got, want)
	}
	if n := strings.Count(log.String(), "a file of a clip without a description was removed"); n != 6 {
		t.Errorf("%d files are said to be removed: %s", n, &log)
	}
}

// Clips are listed while the description of a clip is written to a slow disk.
func TestListDuringWrite(t *testing.T) {
	r := newRig(t, Options{}, Settings{On: []string{Always}})
	r.play(1, 0, 5)
	for i := range 3000 { // a description beyond the capacity of a pipe
		r.event("enter", i%5)
	}
	r.Close()
	r.writes.Wait()
	c := <-r.made
	pipe := filepath.Join(r.folder, c.path+".json.new")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = r.store.SetFavourite(c.ID, true)
	}()
	f, err := os.Open(pipe) // after the description was opened to be written
	if err != nil {
		t.Fatal(err)
	}
	if !r.store.mu.TryLock() {
		t.Error("the list of clips waits for a description")
	} else {
		r.store.mu.Unlock()
		if list, _ := r.store.List(Query{Limit: 9, Keep: all}); len(list) != 1 {
			t.Errorf("%+v", list)
		}
	}
	_, _ = io.Copy(io.Discard, f)
	<-done
	_ = f.Close()
}

// A clip on a full file system ends with its last whole picture and says so, and clips go on when there is room.
func TestFullDisk(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("make check runs the test, as root, with a small file system")
	}
	r := newRig(t, Options{}, Settings{On: []string{Always}})
	if err := syscall.Mount("none", r.folder, "tmpfs", 0, "size=128k,mode=700"); err != nil {
		t.Skip("this user may not mount a file system: ", err)
	}
	defer func() {
		if err := syscall.Unmount(r.folder, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	fill := filepath.Join(r.folder, "fill")
	if err := os.WriteFile(fill, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 10 { // one clip is too small for the disk
		r.play(uint64(i), 0, 70)
		r.Lost(CutReconnected)
	}
	r.writes.Wait()
	full := 0
	for len(r.made) > 0 {
		c := <-r.made
		if c.Cut == CutFull {
			full++
		}
		if n := pictures(t, filepath.Join(r.folder, c.path+".mp4")); n != c.Frames {
			t.Errorf("%d pictures, and %d in the file", c.Frames, n)
		}
	}
	if left, err := filepath.Glob(filepath.Join(r.folder, "*/*/*.new")); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
	if n := r.store.Stats().Fragmented; n == 0 {
		t.Error("each clip has an index, on a full disk")
	}
	if st := r.store.Stats(); full == 0 || st.Cuts[CutFull] < uint64(full) {
		t.Errorf("%d clips on a full disk, %+v", full, st)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	r.play(10, 0, 10)
	r.Lost(CutReconnected)
	r.writes.Wait()
	if c := <-r.made; c.Cut != CutReconnected || c.Frames != 10 {
		t.Errorf("%+v", c)
	}
}
