package onnx

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	ort "github.com/yalue/onnxruntime_go"

	"millrace/stream"
)

// EnvLibrary names the library where the setting does not.
const EnvLibrary = "MILLRACE_ONNX_LIBRARY"

const (
	fetched = "1.27.0" // what `make onnxruntime` puts into the cache folder
	oldest  = "1.24"   // the first with the C API that the binding asks for
	file    = "libonnxruntime.so.1"
)

// library is the one that is loaded: a process can have one.
var library struct {
	sync.Mutex
	set    string // by SetLibrary
	loaded string
}

// SetLibrary names the shared library to load, as the setting onnx.library does;
// "" has it looked for. Once a model has been loaded it changes nothing.
func SetLibrary(path string) {
	library.Lock()
	defer library.Unlock()
	library.set = path
}

// Library returns the path of the library, loading it if that has not happened.
func Library() (string, error) {
	library.Lock()
	defer library.Unlock()
	if library.loaded != "" {
		return library.loaded, nil
	}
	path, err := load(library.set)
	library.loaded = path
	return path, err
}

// place is somewhere to look for the library.
type place struct {
	what  string // for messages
	paths []string
	must  bool // named by the user: nothing else will do
}

func places(set string) []place {
	cache := ""
	if dir, err := os.UserCacheDir(); err == nil {
		cache = filepath.Join(dir, "millrace", "onnxruntime-"+fetched, file)
	}
	env := os.Getenv(EnvLibrary)
	system := []string{file, "libonnxruntime.so"}
	for _, dir := range []string{"/usr/local/lib", "/opt/onnxruntime/lib"} {
		system = append(system, filepath.Join(dir, file), filepath.Join(dir, "libonnxruntime.so"))
	}
	return []place{
		{"the setting onnx.library", []string{set}, set != ""},
		{"the variable " + EnvLibrary, []string{env}, env != ""},
		{"the cache folder", []string{cache}, false},
		{"the system's libraries", system, false},
	}
}

// load tries one place after the other.
func load(set string) (string, error) {
	var tried []string
	for _, p := range places(set) {
		why := "not set"
		for _, path := range p.paths {
			if path == "" {
				continue
			}
			if _, err := os.Stat(path); err != nil && strings.ContainsRune(path, filepath.Separator) {
				why = path + ": " + reason(err)
				continue
			}
			err := initialise(path)
			if err == nil {
				return path, nil
			}
			why = err.Error()
			if _, err := os.Stat(path); err == nil && !p.must {
				p.must = true // it is there and does not work: say so rather than search on
			}
		}
		if p.must {
			return "", stream.Errorf(stream.Unavailable, "onnx.library", "ONNX Runtime's library, named by %s, cannot be used: %s", p.what, why)
		}
		if p.what == "the system's libraries" {
			why = "none"
		}
		tried = append(tried, p.what+" ("+why+")")
	}
	return "", stream.Errorf(stream.Unavailable, "onnx.library",
		"ONNX Runtime's library was not found in %s. `make onnxruntime` in a checkout fetches it; or name a library of version %s or newer", strings.Join(tried, ", "), oldest)
}

func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// initialise loads one file. A failure leaves nothing behind, so that another
// may be tried.
func initialise(path string) error {
	ort.SetSharedLibraryPath(path)
	// Errors come back from the calls; the library need not print them as well.
	err := ort.InitializeEnvironment(ort.WithLogLevelFatal())
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "Error setting ORT API base"):
		return fmt.Errorf("%s is older than %s", path, oldest)
	case strings.Contains(err.Error(), "OrtGetApiBase"):
		return fmt.Errorf("%s is not ONNX Runtime", path)
	}
	text := err.Error()
	if _, loader, ok := strings.Cut(text, "\": "); ok {
		text = loader // what the loader said, which names the file
	}
	return errors.New(text)
}
