package modelsource

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"millrace/internal/modelurl"
)

// childFetches is the variable that makes the test program fetch the address and die.
const childFetches = "MODELSOURCE_TEST_FETCH"

func TestMain(m *testing.M) {
	if at := os.Getenv(childFetches); at != "" {
		fetchInChild(at)
		return
	}
	goleak.VerifyTestMain(m)
}

// fetchInChild fetches ADDRESS of CACHE|CA|ADDRESS and prints the content.
func fetchInChild(text string) {
	at := strings.SplitN(text, "|", 3)
	c, err := Open(Options{Dir: at[0], CA: at[1]})
	if err != nil {
		fmt.Println(err)
		return
	}
	u, err := c.Parse(at[2])
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := c.Get(context.Background(), u)
	if err != nil {
		fmt.Println(err)
		return
	}
	local, _, err := s.Place("x")
	b, readErr := os.ReadFile(local)
	fmt.Printf("%s %v", b, errors.Join(err, readErr, c.Close()))
}

func inChild(t *testing.T, o Options, address string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childFetches+"="+o.Dir+"|"+o.CA+"|"+address)
	return cmd
}

// Several processes that fetch the same source at once send one request, and all get the files.
func TestProcessesShare(t *testing.T) {
	w := newWeb(t)
	address := w.put("model.onnx", []byte("weights"))
	o := Options{Dir: filepath.Join(t.TempDir(), "cache"), CA: w.ca}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			out, err := inChild(t, o, address).CombinedOutput()
			if err != nil || string(out) != "weights <nil>" {
				t.Errorf("%s, %v", out, err)
			}
		})
	}
	all.Wait()
	if n := w.gets.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
	if left, err := os.ReadDir(filepath.Join(o.Dir, useDir)); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// What a process leaves that was killed during a fetch, and during the use of files, does not disturb the next process.
func TestKilled(t *testing.T) {
	w := newWeb(t)
	data := strings.Repeat("weights", 100_000)
	address := w.put("model.onnx", []byte(data))
	o := Options{Dir: filepath.Join(t.TempDir(), "cache"), CA: w.ca}
	half, release := make(chan struct{}), make(chan struct{})
	w.answer(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Length", fmt.Sprint(len(data)))
		_, _ = rw.Write([]byte(data[:len(data)/2]))
		rw.(http.Flusher).Flush()
		close(half)
		<-release
	})
	child := inChild(t, o, address)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	<-half
	if err := child.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // ended by the signal
	close(release)
	stray := filepath.Join(o.Dir, useDir, "123")
	if err := os.MkdirAll(filepath.Join(stray, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.answer(nil)
	c := open(t, o)
	if got, _ := text(t, c, address); got != data {
		t.Errorf("%d bytes", len(got))
	}
	if _, err := os.Stat(stray); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of a killed process: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(o.Dir, partialDir, "*")); err != nil || len(left) != 1 {
		t.Errorf("%v are left beside a lock, %v", left, err)
	}
}

// Damaged files of the cache are found, and fetched again.
func TestDamaged(t *testing.T) {
	w := newWeb(t)
	address := w.put("model.onnx", []byte("weights"))
	for name, damage := range map[string]func(file string) error{
		"content": func(file string) error { return os.WriteFile(file, []byte("Weights"), 0o600) },
		"size":    func(file string) error { return os.Truncate(file, 3) },
		"gone":    os.Remove,
		"manifest": func(file string) error {
			return os.WriteFile(filepath.Join(filepath.Dir(file), "..", manifestFile), []byte("[]"), 0o600)
		},
		"half a manifest": func(file string) error {
			return os.Truncate(filepath.Join(filepath.Dir(file), "..", manifestFile), 5)
		},
	} {
		o := Options{Dir: filepath.Join(t.TempDir(), "cache"), CA: w.ca}
		_, s := text(t, open(t, o), address)
		s.Release()
		file := filepath.Join(s.dir, "model.onnx")
		if err := errors.Join(os.Chmod(file, 0o600), damage(file)); err != nil {
			t.Fatal(err)
		}
		before := w.gets.Load()
		if got, _ := text(t, open(t, o), address); got != "weights" || w.gets.Load() != before+1 {
			t.Errorf("%s: %q after %d requests", name, got, w.gets.Load()-before)
		}
	}
}

// At the limit the files used longest ago are removed, and never files in use. A full cache is an error that names the
// setting, and what is in use stays readable.
func TestFull(t *testing.T) {
	w := newWeb(t)
	c := open(t, Options{CA: w.ca, Size: 250})
	var addresses []string
	for i := range 4 {
		addresses = append(addresses, w.put(fmt.Sprintf("m%d.onnx", i), []byte(strings.Repeat(fmt.Sprint(i), 100))))
	}
	get := func(i int) *Source {
		s, err := c.Get(t.Context(), parse(t, c, addresses[i]))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	has := func(i int) bool {
		u := parse(t, c, addresses[i])
		s, err := c.cached(t.Context(), u, keyOf(u, httpOrigin{c}), "")
		if err != nil {
			t.Fatal(err)
		}
		if s != nil {
			s.Release()
		}
		return s != nil
	}
	first := get(0)
	get(1).Release()
	get(2).Release() // 1 is removed: 0 is in use
	if has(1) {
		t.Error("the files used longest ago are there")
	}
	second := get(2)
	if !has(0) || !has(2) {
		t.Error("files in use are gone")
	}
	refuses(t, c, addresses[3], "is full", "2 models and repositories", "model_sources.cache_size allows more")
	local, _, err := first.Place("x")
	if err != nil {
		t.Fatal(err)
	}
	first.Release()
	get(3).Release()
	if b, err := os.ReadFile(local); err != nil || len(b) != 100 {
		t.Errorf("a placed file after the removal from the cache: %d bytes, %v", len(b), err)
	}
	second.Release()
}

// Files in the cache that cannot be read now stay there, and offline damaged files stay, too.
func TestDamagedStays(t *testing.T) {
	w := newWeb(t)
	address := w.put("model.onnx", []byte("weights"))
	for name, c2 := range map[string]struct {
		offline bool
		damage  func(entry string) error
		want    string
	}{
		"a manifest that cannot be read": {false, func(entry string) error { // stands for a lack of file descriptors
			file := filepath.Join(entry, manifestFile)
			return errors.Join(os.Remove(file), os.Mkdir(file, 0o700))
		}, manifestFile},
		"no manifest, offline": {true, func(entry string) error {
			return os.Remove(filepath.Join(entry, manifestFile))
		}, "without model_sources.offline"},
		"half a manifest, offline": {true, func(entry string) error {
			return os.Truncate(filepath.Join(entry, manifestFile), 5)
		}, "without model_sources.offline"},
		"no file, offline": {true, func(entry string) error {
			return os.Remove(filepath.Join(entry, filesDir, "model.onnx"))
		}, "without model_sources.offline"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Dir: filepath.Join(t.TempDir(), "cache"), CA: w.ca}
			_, s := text(t, open(t, o), address)
			s.Release()
			entry := filepath.Dir(s.dir)
			if err := c2.damage(entry); err != nil {
				t.Fatal(err)
			}
			o.Offline = c2.offline
			c := open(t, o)
			_, err := c.Get(t.Context(), parse(t, c, address))
			if err == nil || !strings.Contains(err.Error(), c2.want) {
				t.Errorf("%v, want %q", err, c2.want)
			}
			if _, err := os.Stat(entry); err != nil {
				t.Errorf("the entry: %v", err)
			}
		})
	}
}

// Large files are compared with their digests, too, once in a process.
func TestLarge(t *testing.T) {
	c := open(t, Options{})
	f := file{"model.onnx", 257 << 20, sumText([]byte("others")), false}
	s := &Source{Digest: digestOf([]file{f}), Bytes: f.Size, files: []file{f}, dir: t.TempDir()}
	name := filepath.Join(s.dir, f.Path)
	if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Truncate(name, f.Size)); err != nil {
		t.Fatal(err)
	}
	if err := c.verify(t.Context(), s); !errors.As(err, new(damage)) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.verify(ctx, s); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
	c.setVerified(s.Digest)
	if err := c.verify(t.Context(), s); err != nil {
		t.Errorf("a second comparison: %v", err)
	}
}

// Parts of failed fetches count, and are removed before entries; parts of a running fetch stay.
func TestPartsCount(t *testing.T) {
	w := newWeb(t)
	c := open(t, Options{CA: w.ca, Size: 250})
	text(t, c, w.put("a.onnx", make([]byte, 100)))
	part := func(key string) string {
		dir := filepath.Join(c.Dir(), partialDir, key)
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "part"), make([]byte, 100),
			0o600)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	is := func(dir string) bool { _, err := os.Stat(dir); return err == nil }
	first, second := part("1"), part("2") // 300 bytes with a
	refuses(t, c, w.URL+"/absent.onnx#sha256="+sumText(nil), "has no such file")
	if is(first) == is(second) {
		t.Errorf("the parts are there: %v, %v", is(first), is(second))
	}
	first, second = part("1"), part("2")
	lock, err := c.lockSource(t.Context(), modelurl.URL{}, "2")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	refuses(t, c, w.put("b.onnx", make([]byte, 101)), "is full")
	if is(first) || !is(second) {
		t.Errorf("the parts are there: %v, %v", is(first), is(second))
	}
	if list, _, err := c.entries(); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}
