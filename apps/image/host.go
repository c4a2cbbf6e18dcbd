package image

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"millrace/internal/ociimage"
)

// machines are the architectures of images, by the machine of a program.
var machines = map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}

// architecture returns the architecture of a program.
func architecture(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", fmt.Errorf("program: %s is no program of Linux (%w): images are built on Linux, or from a program "+
			"of a release for Linux", program, err)
	}
	defer f.Close()
	arch := machines[f.Machine]
	if arch == "" {
		return "", fmt.Errorf("program: %s is for %v: images are for amd64 and arm64", program, f.Machine)
	}
	return arch, nil
}

// libraries copies the shared libraries that programs need into a tree, as the loader of this machine would find
// them.
type libraries struct {
	tree    ociimage.Tree
	folders []string // of this machine, in the order in which the loader searches
	to      string   // the folder in the image that the copied loader searches
	machine elf.Machine
	base    *Base
	done    map[string]bool   // files whose needs are met
	from    map[string]string // files of this machine, by path in the image
	notes   []string
}

func newLibraries(t ociimage.Tree, folders []string, program string, base *Base) (*libraries, error) {
	f, err := elf.Open(program)
	if err != nil {
		return nil, fmt.Errorf("program: %w", err)
	}
	defer f.Close()
	l := &libraries{tree: t, folders: folders, to: "usr/lib", machine: f.Machine, base: base, done: map[string]bool{},
		from: map[string]string{}}
	if base != nil {
		l.to = base.libraries
		return l, base.runs(program, machines[f.Machine])
	}
	if file := l.find("libc.so.6", nil); file != "" {
		dir, err := filepath.EvalSymlinks(filepath.Dir(file))
		if err != nil {
			return nil, err
		}
		l.to = dir[1:]
	}
	return l, nil
}

// hostFolders returns the folders that the loader of this machine searches: those of /etc/ld.so.conf, and the
// standard folders.
func hostFolders() ([]string, error) {
	var list []string
	var read func(pattern string, depth int) error
	read = func(pattern string, depth int) error {
		names, err := filepath.Glob(pattern)
		if err != nil || depth > 8 {
			return err
		}
		for _, name := range names {
			text, ok, err := textFile(name, 1<<20)
			if err != nil || !ok {
				continue
			}
			for line := range strings.Lines(string(text)) {
				line, _, _ = strings.Cut(line, "#")
				line = strings.TrimSpace(line)
				if more, is := strings.CutPrefix(line, "include "); is {
					more = strings.TrimSpace(more)
					if !filepath.IsAbs(more) {
						more = filepath.Join(filepath.Dir(name), more)
					}
					if err := read(more, depth+1); err != nil {
						return err
					}
				} else if filepath.IsAbs(line) {
					list = append(list, filepath.Clean(line))
				}
			}
		}
		return nil
	}
	err := read("/etc/ld.so.conf", 0)
	return append(list, "/lib64", "/usr/lib64", "/lib", "/usr/lib"), err
}

// find returns a library of this machine, searched first in the folders of a file's own list.
func (l *libraries) find(name string, own []string) string {
	for _, dir := range slices.Concat(own, l.folders) {
		if file := filepath.Join(dir, name); l.fits(file) {
			return file
		}
	}
	return ""
}

// fits reports whether a file is a program or library of the image's architecture.
func (l *libraries) fits(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Machine == l.machine
}

// missing is a library that this machine does not have.
type missing struct{ file, name string }

func (m missing) Error() string {
	return fmt.Sprintf("%s needs the library %s, which this machine does not have: install the package with %s", m.file,
		m.name, m.name)
}

// need copies the libraries that a program or library needs. Files that are no programs need nothing.
func (l *libraries) need(file string) error { return l.needWithin(file, "") }

// needWithin is need for a file of a folder that is copied as a whole: libraries found within the folder stay there.
func (l *libraries) needWithin(file, folder string) error {
	if l.done[file] {
		return nil
	}
	l.done[file] = true
	n, ok, err := ociimage.ReadNeeds(file)
	if err != nil || !ok {
		if err != nil {
			err = fmt.Errorf("%s: %w", file, err)
		}
		return err
	}
	if l.base != nil && folder != "" {
		return nil // the base has the libraries of its Python
	}
	if n.Loader != "" && l.base == nil {
		real, err := filepath.EvalSymlinks(n.Loader)
		if err != nil || !path.IsAbs(n.Loader) || !l.fits(real) { // a program may name any file of this machine
			return missing{file, n.Loader}
		}
		l.add(n.Loader[1:], real)
	}
	own := make([]string, 0, len(n.Paths))
	for _, p := range n.Paths {
		p = strings.NewReplacer("${ORIGIN}", filepath.Dir(file), "$ORIGIN", filepath.Dir(file)).Replace(p)
		if filepath.IsAbs(p) {
			own = append(own, p)
		}
	}
	for _, name := range n.Names {
		if err := l.library(file, name, folder, own); err != nil {
			return err
		}
	}
	return nil
}

// library copies a library that a file needs.
func (l *libraries) library(file, name, folder string, own []string) error {
	if strings.HasPrefix(name, "ld-linux") || l.base.has(name) {
		return nil
	}
	found := ""
	if path.Base(name) == name { // others would be copied to any place in the image
		found = l.find(name, own)
	}
	if found == "" {
		return missing{file, name}
	}
	real, err := filepath.EvalSymlinks(found)
	if err != nil {
		return err
	}
	if folder != "" && (strings.HasPrefix(found, folder+"/") || strings.HasPrefix(real, folder+"/")) {
		return nil // in the folder, and looked at by itself
	}
	l.add(path.Join(l.to, name), real)
	return l.need(real)
}

// add adds a file of this machine.
func (l *libraries) add(to, from string) {
	if _, has := l.tree[to]; !has {
		l.tree[to] = ociimage.Entry{From: from, Mode: 0o755}
		l.from[to] = from
	}
}

// ffmpeg adds ffmpeg and ffprobe.
func (l *libraries) ffmpeg() error {
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		found, err := exec.LookPath(name)
		if err == nil {
			found, err = filepath.EvalSymlinks(found)
		}
		if err != nil {
			return fmt.Errorf("ffmpeg: this machine has no %s in PATH: install ffmpeg (apt-get install ffmpeg), or "+
				"leave ffmpeg out of the image", name)
		}
		if _, ok, err := ociimage.ReadNeeds(found); err != nil || !ok {
			return fmt.Errorf("ffmpeg: %s is no program that can be copied: install Debian's ffmpeg", found)
		}
		l.add("usr/bin/"+name, found)
		if err := l.need(found); err != nil {
			return fmt.Errorf("ffmpeg: %w", err)
		}
	}
	return nil
}

// describe adds the descriptions and licences of Debian's packages whose files were copied. On other systems, each
// library is a part by its file name.
func (l *libraries) describe(parts *[]part) error {
	owners, err := owners(slices.Collect(maps.Values(l.from)))
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for to, from := range l.from {
		if pkg := owners[from]; pkg != "" {
			names[pkg] = true
		} else if !strings.HasPrefix(to, PythonAt[1:]+"/") {
			*parts = append(*parts, part{typ: "file", name: path.Base(to), purl: "pkg:generic/" + path.Base(to)})
		}
	}
	if len(names) == 0 {
		return nil
	}
	stanzas, err := installed(names)
	if err != nil {
		return err
	}
	for name, stanza := range stanzas {
		version := field(stanza, "Version")
		*parts = append(*parts, part{typ: "library", name: name, version: version,
			purl: "pkg:deb/debian/" + name + "@" + version + "?arch=" + field(stanza, "Architecture")})
		l.tree.Text("var/lib/dpkg/status.d/"+name, stanza)
		doc := "usr/share/doc/" + name + "/copyright"
		if text, ok, err := textFile("/"+doc, 4<<20); err == nil && ok {
			l.tree.Text(doc, string(text))
		}
	}
	return nil
}

// owners returns Debian's packages of files, by file. Packages name files before or after /lib became /usr/lib.
func owners(files []string) (map[string]string, error) {
	lists, err := filepath.Glob("/var/lib/dpkg/info/*.list")
	if err != nil {
		return nil, err
	}
	wanted := map[string]string{}
	for _, f := range files {
		wanted[f] = f
		wanted[strings.TrimPrefix(f, "/usr")] = f
	}
	found := map[string]string{}
	for _, list := range lists {
		f, err := os.Open(list)
		if err != nil {
			return nil, err
		}
		pkg, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(list), ".list"), ":")
		s := bufio.NewScanner(f)
		for s.Scan() {
			if file := wanted[s.Text()]; file != "" {
				found[file] = pkg
			}
		}
		if err := errors.Join(s.Err(), f.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", list, err)
		}
	}
	return found, nil
}

// installed returns the descriptions of installed packages of Debian, by name.
func installed(names map[string]bool) (map[string]string, error) {
	text, err := os.ReadFile("/var/lib/dpkg/status")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	found := map[string]string{}
	for stanza := range strings.SplitSeq(string(text), "\n\n") {
		if name := field(stanza, "Package"); names[name] {
			found[name] = strings.TrimSpace(stanza) + "\n"
		}
	}
	return found, err
}

// field returns the value of a field in a description of a package.
func field(stanza, name string) string {
	for line := range strings.Lines(stanza) {
		if value, is := strings.CutPrefix(line, name+": "); is {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
