// Package confine defines the access of the programs started by the server: ffmpeg, and programs with the code of
// models or of exec: sources. The package owns the lists of system files needed by programs, and the access added by
// the setting confine.
//
// The package must not know how a child is confined (package child does), nor the purpose of a program.
package confine

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"millrace/internal/child"
)

// Programs is the access of programs with the code of models or of exec: sources. nil means unlimited access.
// Programs may be used concurrently.
type Programs struct {
	Network bool     // the whole network
	Read    []string // files, and folders with their contents
	Write   []string // the same, and devices
	Files   uint64   // open at once
	// Private are files and folders of the server that no program may read, wherever they are.
	Private []string
}

// Apply confines the program of spec to the system's files and to own: files of the program, and folders with their
// contents.
func (p *Programs) Apply(spec *child.Spec, own ...string) {
	if p == nil {
		return
	}
	read := slices.Concat(SystemFiles(), programFiles(), Installation(spec.Path), own, p.Read)
	if p.Network {
		read = append(read, ResolverFiles()...)
	}
	s := &child.Sandbox{Network: p.Network, NoCapabilities: true, Write: append(devices(), p.Write...)}
	s.Read, s.List = without(read, p.Private)
	spec.Sandbox, spec.Temp, spec.Limits.Files = s, true, p.Files
}

// Sandbox returns the sandbox of a program that reads only files, possibly folders, without the private files in
// them.
func Sandbox(files, private []string) *child.Sandbox {
	s := &child.Sandbox{NoCapabilities: true}
	s.Read, s.List = without(files, private)
	return s
}

// Validate returns an error if a program could change private files.
func (p *Programs) Validate() error {
	for _, dir := range p.Write {
		for _, file := range p.Private {
			if isWithin(real(file), real(dir)) || isWithin(real(dir), real(file)) {
				return fmt.Errorf("programs could change %s of the server by %s: name another folder", file, dir)
			}
		}
	}
	return nil
}

// Check returns an error if a program cannot be confined here, or does not start when confined: Python, or a shell
// without Python.
func (p *Programs) Check(ctx context.Context) error {
	if err := child.SandboxError(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	spec := child.Spec{Path: "python3", Args: []string{"-c", "import json, tempfile; tempfile.TemporaryFile()"}}
	if _, err := exec.LookPath(spec.Path); err != nil {
		spec.Path, spec.Args = "sh", []string{"-c", ": >$TMPDIR/file"}
	}
	p.Apply(&spec)
	c, err := child.Start(ctx, spec)
	if err != nil {
		return err
	}
	defer func() { _ = c.Stop(0) }()
	_, _ = io.Copy(io.Discard, c.Stdout)
	return c.Wait()
}

// UnsupportedRestrictions returns the limits of access that this kernel cannot enforce; "" = none.
func UnsupportedRestrictions() string {
	if child.LandlockABI() < 6 {
		return "programs can send signals to other processes of the server's user: that needs Linux 6.12"
	}
	return ""
}

// Folder returns the folder of a program, for own of Apply: path, or the folder of the file path. Folder returns ""
// for the user's home folder and its parents, because most of their contents belong to no program.
func Folder(path string) string {
	dir := real(path)
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		dir = real(filepath.Dir(path)) // for a link, the folder of the link itself
	}
	if home, err := os.UserHomeDir(); dir == "/" || err == nil && isWithin(real(home), dir) {
		return ""
	}
	return dir
}

// Installation returns the files of an installed program such as an interpreter: its prefix has a folder bin, and
// libraries beside bin. A link, such as the interpreter of a virtual environment, belongs to both prefixes.
func Installation(program string) (files []string) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil // and the program does not start
	}
	path, _ = filepath.Abs(path)
	names := []string{"bin", "lib", "lib64", "libexec", "share", "ssl", "include", "pyvenv.cfg"}
	for _, path := range slices.Compact([]string{path, real(path)}) {
		bin := filepath.Dir(path)
		prefix := filepath.Dir(bin)
		switch filepath.Base(bin) {
		case "bin":
		case "shims": // scripts of pyenv, for starting the interpreter of a version
			names = append(names, "shims", "versions", "version", "plugins", "pyenv.d")
		default:
			continue
		}
		for _, name := range names {
			if prefix != "/" {
				files = append(files, filepath.Join(prefix, name))
			}
		}
	}
	return files
}

// Arguments returns the files named by a command line, such as a script, for own of Apply.
func Arguments(spec *child.Spec) (files []string) {
	for _, arg := range spec.Args {
		if !filepath.IsAbs(arg) {
			arg = filepath.Join(spec.Dir, arg)
		}
		if st, err := os.Stat(arg); err == nil && st.Mode().IsRegular() {
			files = append(files, arg)
		}
	}
	return files
}

// without returns paths without the private files. For a folder with private contents, list has the folder, and read
// its present other contents.
func without(paths, private []string) (read, list []string) {
	hidden := make([]string, 0, len(private))
	for _, path := range private {
		hidden = append(hidden, real(path))
	}
	var add func(path string)
	add = func(path string) {
		path = real(path)
		switch {
		case slices.ContainsFunc(hidden, func(h string) bool { return isWithin(path, h) }):
		case slices.ContainsFunc(hidden, func(h string) bool { return isWithin(h, path) }):
			list = append(list, path)
			entries, _ := os.ReadDir(path)
			for _, e := range entries {
				if e.Type()&os.ModeSymlink == 0 { // the link's target is in the folder too, or not allowed
					add(filepath.Join(path, e.Name()))
				}
			}
		default:
			read = append(read, path)
		}
	}
	for _, path := range paths {
		if path != "" {
			add(path)
		}
	}
	return read, list
}

// isWithin reports whether path is dir, or in dir.
func isWithin(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// real returns the absolute path without links. The last part need not exist.
func real(path string) string {
	path, _ = filepath.Abs(path)
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}
