package ociimage

import (
	"bytes"
	"debug/elf"
	"path"
	"strings"
)

// Needs are the libraries of a program or library, as its file says.
type Needs struct {
	Names  []string // DT_NEEDED
	Paths  []string // DT_RUNPATH, or DT_RPATH
	Loader string   // path of the program that loads the libraries, "" for a library
	GLIBC  []string // versions of the C library, such as GLIBC_2.34
}

// ReadNeeds returns the needs of a file, or ok false for a file that is neither a program nor a library.
func ReadNeeds(file string) (n Needs, ok bool, err error) {
	f, err := elf.Open(file)
	if err != nil {
		return n, false, nil // not a program
	}
	defer f.Close()
	if n.Names, err = f.ImportedLibraries(); err != nil {
		return n, true, err
	}
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		list, err := f.DynString(tag)
		if err != nil {
			return n, true, err
		}
		for _, l := range list {
			if len(n.Paths) == 0 {
				n.Paths = strings.Split(l, ":")
			}
		}
	}
	if s := f.Section(".interp"); s != nil {
		loader, err := s.Data()
		if err != nil {
			return n, true, err
		}
		n.Loader = path.Clean(string(bytes.TrimRight(loader, "\x00")))
	}
	versions, err := f.DynamicVersionNeeds()
	for _, v := range versions {
		for _, d := range v.Needs {
			if strings.HasPrefix(d.Dep, "GLIBC_") {
				n.GLIBC = append(n.GLIBC, d.Dep)
			}
		}
	}
	if err != nil {
		n.GLIBC = nil // a program without versions
	}
	return n, true, nil
}
