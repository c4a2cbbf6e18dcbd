//go:build cgo

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

// Built is true in builds that can run ONNX models.
const Built = true

const (
	fetchedVersion = "1.27.0" // what `make onnxruntime` stores in the cache folder
	minVersion     = "1.24"   // the first version with the binding's version of the C API
	file           = "libonnxruntime.so.1"
)

// library is the loaded library; a process can load only one.
var library struct {
	sync.Mutex
	set    string // by SetLibrary
	memory int64  // by SetMemory
	loaded string
}

// SetLibrary names the shared library to load, like the setting onnx.library; "" searches for the library. SetLibrary
// has no effect after the first model was loaded.
func SetLibrary(path string) {
	library.Lock()
	defer library.Unlock()
	library.set = path
}

// SetMemory sets the memory limit in bytes, over all models, for tensors within the graphs and for outputs allocated
// by ONNX Runtime, like the setting onnx.memory; 0 = no limit. SetMemory has no effect after the first model was
// loaded.
func SetMemory(bytes int64) {
	library.Lock()
	defer library.Unlock()
	library.memory = bytes
}

// Library loads the library, if not yet loaded, and returns the library's path.
func Library() (string, error) {
	library.Lock()
	defer library.Unlock()
	if library.loaded != "" {
		return library.loaded, nil
	}
	path, err := load(library.set)
	if err != nil {
		return "", err
	}
	if err := boundMemory(library.memory); err != nil {
		return "", stream.Errorf(stream.Internal, "onnx.memory", "%w", err)
	}
	library.loaded = path
	return path, nil
}

// searchPath is a place to search for the library.
type searchPath struct {
	what  string // name in messages
	paths []string
	must  bool   // named by the user: no other place is searched
	hint  string // what to do about an unusable library
}

func searchPaths(set string) []searchPath {
	var beside, cached []string
	if program, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(program); err == nil {
			program = real
		}
		dir := filepath.Dir(program)
		beside = []string{filepath.Join(dir, file), filepath.Join(dir, "..", "lib", "millrace", file)}
	}
	fetched := filepath.Join("millrace", "onnxruntime-"+fetchedVersion, file)
	if dir, err := os.UserCacheDir(); err == nil { // users of services may have none
		cached = []string{filepath.Join(dir, fetched)}
	}
	installed := []string{filepath.Join("/usr/lib/millrace", file), filepath.Join("/var/cache", fetched)}
	system := []string{file, "libonnxruntime.so"}
	for _, dir := range []string{"/usr/local/lib", "/opt/onnxruntime/lib"} {
		system = append(system, filepath.Join(dir, file), filepath.Join(dir, "libonnxruntime.so"))
	}
	named := func(what, path string) searchPath {
		p := searchPath{what: what, must: path != ""}
		if p.must {
			p.paths = []string{path}
		}
		return p
	}
	return []searchPath{
		named("the setting onnx.library", set),
		named("the variable "+EnvLibrary, os.Getenv(EnvLibrary)),
		{what: "the program's folder and ../lib/millrace", paths: beside,
			hint: ". Remove it, or unpack the archive of the release again"},
		{what: "the cache folder", paths: cached, hint: ". Remove it, and `make onnxruntime` fetches it again"},
		{what: "/usr/lib/millrace and /var/cache/millrace", paths: installed, hint: ". Replace or remove it"},
		{what: "the system's libraries", paths: system,
			hint: ". The archive of a release has one that can, and `make onnxruntime` in a checkout fetches it"},
	}
}

// load tries the places in order. An existing but unusable library ends the search with its error.
func load(set string) (string, error) {
	var tried []string
	for _, p := range searchPaths(set) {
		why := "not set"
		for _, path := range p.paths {
			err := initialise(path)
			if err == nil {
				return path, nil
			}
			if p.must || !errors.As(err, new(missingLibrary)) {
				return "", stream.Errorf(stream.Unavailable, "onnx.library",
					"ONNX Runtime's library from %s cannot be used: %w%s", p.what, err, p.hint)
			}
			why = err.Error()
		}
		if len(p.paths) > 1 {
			why = "none"
		}
		tried = append(tried, p.what+" ("+why+")")
	}
	return "", stream.Errorf(stream.Unavailable, "onnx.library",
		"ONNX Runtime's library was not found in %s. The archive of a release has it; `make onnxruntime` in a "+
			"checkout fetches it; or name a library of version %s or newer", strings.Join(tried, ", "), minVersion)
}

// boundMemory makes the allocator shared by all sessions, with a limit in bytes.
func boundMemory(limit int64) error {
	config, err := ort.NewArenaCfg(int(limit), -1, -1, -1)
	if err != nil {
		return err
	}
	defer config.Destroy()
	of, err := ort.GetMemoryInfo()
	if err != nil {
		return err
	}
	return ort.CreateAndRegisterAllocator(of, config)
}

// missingLibrary is the error of a library that does not exist.
type missingLibrary string

func (m missingLibrary) Error() string { return string(m) }

// initialise loads one file. After a failure another file may be tried.
func initialise(path string) error {
	here := strings.ContainsRune(path, filepath.Separator) // otherwise the loader searches for path
	if here {
		if _, err := os.Stat(path); err != nil {
			return missingLibrary(path + ": " + errors.Unwrap(err).Error())
		}
	}
	// The binding reads the loader's error in a separate call, and the error is kept
	// per thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ort.SetSharedLibraryPath(path)
	// Calls return errors; the library need not print errors, too.
	err := ort.InitializeEnvironment(ort.WithLogLevelFatal())
	if err == nil {
		return nil
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "Error setting ORT API base"):
		return fmt.Errorf("%s is older than %s", path, minVersion)
	case strings.Contains(text, "OrtGetApiBase"):
		return fmt.Errorf("%s is not ONNX Runtime, of which %s or newer is needed", path, minVersion)
	}
	if _, loader, ok := strings.Cut(text, "\": "); ok {
		text = loader // the loader's message names the file
	}
	if strings.HasPrefix(text, path+": cannot open shared object file: No such file") {
		if !here {
			return missingLibrary(text)
		}
		text = path + " is for another kind of machine" // the loader reports a missing file
	}
	return fmt.Errorf("%s; ONNX Runtime %s or newer for %s/%s is needed", text, minVersion, runtime.GOOS,
		runtime.GOARCH)
}
