package onnx

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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
	must  bool   // named by the user: nothing else will do
	hint  string // what to do when a library there cannot be used
}

func places(set string) []place {
	var cached []string
	if dir, err := os.UserCacheDir(); err == nil {
		cached = []string{filepath.Join(dir, "millrace", "onnxruntime-"+fetched, file)}
	}
	system := []string{file, "libonnxruntime.so"}
	for _, dir := range []string{"/usr/local/lib", "/opt/onnxruntime/lib"} {
		system = append(system, filepath.Join(dir, file), filepath.Join(dir, "libonnxruntime.so"))
	}
	named := func(what, path string) place {
		p := place{what: what, must: path != ""}
		if p.must {
			p.paths = []string{path}
		}
		return p
	}
	return []place{
		named("the setting onnx.library", set),
		named("the variable "+EnvLibrary, os.Getenv(EnvLibrary)),
		{what: "the cache folder", paths: cached, hint: ". Remove it, and `make onnxruntime` fetches it again"},
		{what: "the system's libraries", paths: system, hint: ". `make onnxruntime` in a checkout fetches one that can"},
	}
}

// load tries one place after the other. A library that is there and cannot be
// used ends the search, for that is what its owner must know.
func load(set string) (string, error) {
	var tried []string
	for _, p := range places(set) {
		why := "not set"
		for _, path := range p.paths {
			err := initialise(path)
			if err == nil {
				return path, nil
			}
			if p.must || !errors.As(err, new(missing)) {
				return "", stream.Errorf(stream.Unavailable, "onnx.library", "ONNX Runtime's library from %s cannot be used: %w%s", p.what, err, p.hint)
			}
			why = err.Error()
		}
		if len(p.paths) > 1 {
			why = "none"
		}
		tried = append(tried, p.what+" ("+why+")")
	}
	return "", stream.Errorf(stream.Unavailable, "onnx.library",
		"ONNX Runtime's library was not found in %s. `make onnxruntime` in a checkout fetches it; or name a library of version %s or newer", strings.Join(tried, ", "), oldest)
}

// missing says that there is no library of that name.
type missing string

func (m missing) Error() string { return string(m) }

// initialise loads one file. A failure leaves nothing behind, so that another
// may be tried.
func initialise(path string) error {
	here := strings.ContainsRune(path, filepath.Separator) // otherwise the loader knows where
	if here {
		if _, err := os.Stat(path); err != nil {
			return missing(path + ": " + errors.Unwrap(err).Error())
		}
	}
	ort.SetSharedLibraryPath(path)
	// Errors come back from the calls; the library need not print them as well.
	err := ort.InitializeEnvironment(ort.WithLogLevelFatal())
	if err == nil {
		return nil
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "Error setting ORT API base"):
		return fmt.Errorf("%s is older than %s", path, oldest)
	case strings.Contains(text, "OrtGetApiBase"):
		return fmt.Errorf("%s is not ONNX Runtime, of which %s or newer is needed", path, oldest)
	}
	if _, loader, ok := strings.Cut(text, "\": "); ok {
		text = loader // what the loader said, which names the file
	}
	if strings.HasPrefix(text, path+": cannot open shared object file: No such file") {
		if !here {
			return missing(text)
		}
		text = path + " is for another kind of machine" // the loader does as if it were not there
	}
	return fmt.Errorf("%s; ONNX Runtime %s or newer for %s/%s is needed", text, oldest, runtime.GOOS, runtime.GOARCH)
}
