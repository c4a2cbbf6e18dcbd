package clips

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"millrace/internal/video"
)

// recorded returns the clip that is being recorded, after a number of pictures were written.
func (r *rig) recorded(frames int) *Clip {
	for {
		if list, _ := r.store.List(Query{Limit: 1, Keep: all}); len(list) == 1 && list[0].Frames == frames {
			return list[0]
		}
	}
}

func fragmented(t *testing.T, path string) bool {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return video.Fragmented(bytes.NewReader(data))
}

// A clip gets its index when it ends. Who has opened the file before reads the file of before.
func TestIndexOfClip(t *testing.T) {
	r := newRig(t, Options{}, Settings{On: []string{Always}})
	r.play(1, 0, 15)
	shown := r.recorded(15)
	path := filepath.Join(r.folder, shown.path+".mp4")
	if !shown.Fragmented || !fragmented(t, path) {
		t.Errorf("%+v", shown)
	}
	early, err := r.store.File(shown, ".mp4")
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	r.Close()
	c := r.clip(0, 15, CutStopped)
	if c.Fragmented || fragmented(t, path) || pictures(t, path) != 15 {
		t.Errorf("%+v", c)
	}
	data, err := io.ReadAll(early)
	old := filepath.Join(t.TempDir(), "old.mp4")
	if err != nil || os.WriteFile(old, data, 0o600) != nil || !fragmented(t, old) || pictures(t, old) != 15 {
		t.Errorf("the file of before: %d bytes, %v", len(data), err)
	}
	size := int64(0)
	for _, name := range c.files() {
		if info, err := os.Stat(filepath.Join(r.folder, name)); err == nil {
			size += info.Size()
		}
	}
	if st := r.store.Stats(); st.Bytes != size || c.Bytes != size || st.Fragmented != 0 {
		t.Errorf("%d bytes of files, %+v, %+v", size, st, c)
	}
	described, err := os.ReadFile(filepath.Join(r.folder, c.path+".json"))
	if err != nil || bytes.Contains(described, []byte("fragmented")) {
		t.Errorf("%v: %s", err, described)
	}
}

// While a second file is written, the description is that of a clip that is ready, and both files count.
func TestSecondFile(t *testing.T) {
	r := newRig(t, Options{}, Settings{On: []string{Always}})
	r.play(1, 0, 75) // beyond the capacity of a pipe
	c := r.recorded(75)
	pipe := filepath.Join(r.folder, c.path+newVideo)
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	r.Close()
	f, err := os.Open(pipe) // after the file was opened to be written
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(r.folder, c.path+".json"))
	var described Clip
	if err != nil || json.Unmarshal(text, &described) != nil || described.State != Ready || !described.Fragmented ||
		described.Frames != 75 {
		t.Errorf("%v: %s", err, text)
	}
	info, err := os.Stat(filepath.Join(r.folder, c.path+".mp4"))
	if got := r.store.Stats().Bytes; err != nil || got != described.Bytes+info.Size() {
		t.Errorf("%d bytes count, of %d and a copy", got, described.Bytes)
	}
	_, _ = io.Copy(io.Discard, f) // a pipe cannot be synchronised: the second file fails
	_ = f.Close()
	c = r.clip(0, 75, CutStopped)
	if !c.Fragmented || pictures(t, filepath.Join(r.folder, c.path+".mp4")) != 75 {
		t.Errorf("%+v", c)
	}
	if _, err := os.Lstat(pipe); !os.IsNotExist(err) {
		t.Error(err)
	}
	if st := r.store.Stats(); st.Fragmented != 1 || st.Bytes != described.Bytes {
		t.Errorf("%+v", st)
	}
}

// Without room for a second file, a clip stays fragmented.
func TestNoRoomForIndex(t *testing.T) {
	r := newRig(t, Options{}, Settings{On: []string{Always}})
	r.play(1, 0, 15)
	r.store.o.MaxBytes = r.recorded(15).Bytes * 3 / 2
	r.Close()
	if c := r.clip(0, 15, CutStopped); !c.Fragmented {
		t.Errorf("%+v", c)
	}
	if n := r.store.Stats().Fragmented; n != 1 {
		t.Errorf("%d clips without an index", n)
	}
}

// A killed server leaves the fragmented video, or the video with the index: the next start says so.
func TestKilledWithSecondFile(t *testing.T) {
	r := newRig(t, Options{}, Settings{On: []string{Always}})
	r.play(1, 0, 15)
	r.store.o.MaxBytes = r.recorded(15).Bytes * 3 / 2 // no room for an index
	r.Close()
	r.writes.Wait()
	c := <-r.made
	killed := t.TempDir()
	if err := os.CopyFS(killed, os.DirFS(r.folder)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(killed, c.path)
	whole, err := os.ReadFile(path + ".mp4")
	if err != nil || os.WriteFile(path+newVideo, whole[:100], 0o600) != nil {
		t.Fatal(err)
	}
	open := func() (found *Clip, log string) {
		t.Helper()
		var text strings.Builder
		o := quiet(killed)
		o.Log = slog.New(slog.NewTextHandler(&text, nil))
		s, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if found, err = s.Get(c.ID); err != nil {
			t.Fatal(err)
		}
		return found, text.String()
	}
	found, log := open()
	if !found.Fragmented || found.Bytes != c.Bytes || pictures(t, path+".mp4") != 15 ||
		!strings.Contains(log, "the clip stays a fragmented MP4") {
		t.Errorf("%+v: %s", found, log)
	}
	if _, err := os.Stat(path + newVideo); !os.IsNotExist(err) {
		t.Error(err)
	}
	// Killed after the replacement, before the description.
	var with bytes.Buffer
	if err := video.Index(&with, bytes.NewReader(whole), int64(len(whole))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".mp4", with.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		found, _ = open()
		if found.Fragmented || found.Bytes != c.Bytes+int64(with.Len()-len(whole)) || pictures(t, path+".mp4") != 15 {
			t.Errorf("%+v", found)
		}
	}
}
