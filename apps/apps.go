// Package apps owns applications: a configuration file in a repository, and the clone of the repository in the folder
// .repo. Package apps must not know the content of configuration files, nor how an application is built or served.
package apps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"millrace/apps/source"
	"millrace/internal/textfile"
)

// Format is a form of configuration files.
type Format struct {
	Name string                 // such as millrace
	File string                 // the default name of the file
	Is   func(data []byte) bool // reports whether a file of another name has this form; nil = no file
	// Needs returns what the application of a configuration file needs; nil for Millrace, whose files package apps
	// must not know.
	Needs func(file string) (*Needs, error)
}

// Needs are the packages and commands of an application before the start, and its tests.
type Needs struct {
	Requirements []string // requirements files of pip, or a pyproject.toml: absolute paths
	Packages     []string // requirements of pip
	System       []string // Debian packages
	Files        []File
	Variant      string // names a further environment of the application; "" = the application's own
	Setup, Tests []Command
	// Exclude reports whether a file or folder is left out of an image: a path in the folder of the configuration file.
	// nil = none are.
	Exclude func(name string) bool
	Image   string // name of the image; "" = the default
}

// File is a file that an application has at an address.
type File struct {
	Path    string // in the folder of the configuration file, with slashes
	Address string // https://HOST/PATH
	SHA256  string // in hexadecimal digits
}

// Command is a program that an application wants to be run in the folder of its configuration file.
type Command struct {
	Name  string   // for messages
	Args  []string // the program and its arguments; python3 is the interpreter of the environment
	Stdin []byte
	Read  []string // further files and folders that the program may read
}

// Shell returns the command of a line for the shell.
func Shell(line string) Command { return Command{Name: line, Args: []string{"sh", "-c", line}} }

// Millrace is the form of the server's own configuration: every file that has no other form.
var Millrace = Format{Name: "millrace", File: "millrace.yaml"}

// App is an application.
type App struct {
	Name   string        // of the repository or folder
	Root   string        // absolute path of the clone or folder
	File   string        // absolute path of the configuration file, inside Root
	Format string        // name of the form of File
	Source source.Source // where the application comes from
	Commit string        // of the clone, 40 digits; "" for a folder
	Notes  []string      // for the user, such as about .git folders that a killed build may have changed
}

// Cloned reports whether Root is a clone made by Init, and not a folder that is used in place.
func (a *App) Cloned() bool { return a.Source.Kind != source.Folder }

// maxConfig is the largest configuration file, in bytes.
const maxConfig = 1 << 20

// find returns the application in the folder root.
func find(s source.Source, root string, formats []Format) (*App, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	formats = append(formats[:len(formats):len(formats)], Millrace)
	a := &App{Name: s.Name(), Root: root, Source: s}
	if s.File == "" {
		var names []string
		for _, f := range formats {
			a.File, a.Format = filepath.Join(root, f.File), f.Name
			names = append(names, f.File)
			err := a.checkFile()
			if err == nil || !errors.Is(err, fs.ErrNotExist) {
				return a, err
			}
		}
		return nil, fmt.Errorf("%s has no %s at the top: name the configuration file, as in REPO|path/to/config.yaml",
			s, strings.Join(names, " and no "))
	}
	a.File = filepath.Join(root, filepath.FromSlash(s.File))
	if err := a.checkFile(); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s has no file %s: compare the path behind the |", s.Address(), s.File)
		}
		return nil, err
	}
	a.Format, err = formatOf(a.File, formats)
	return a, err
}

// checkFile refuses a configuration file that is not a file in Root.
func (a *App) checkFile() error {
	real, err := filepath.EvalSymlinks(a.File)
	if err != nil {
		return err
	}
	root, err := filepath.EvalSymlinks(a.Root)
	if err != nil {
		return err
	}
	if inside, err := filepath.Rel(root, real); err != nil || !filepath.IsLocal(inside) {
		return fmt.Errorf("%s leads out of %s by a symbolic link", a.File, a.Root)
	}
	st, err := os.Stat(real)
	if err == nil && !st.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file: name the configuration file behind the |", a.File)
	}
	return err
}

func formatOf(file string, formats []Format) (string, error) {
	for _, f := range formats {
		if filepath.Base(file) == f.File {
			return f.Name, nil
		}
	}
	data, err := textfile.Read(file, maxConfig)
	if err != nil {
		return "", err
	}
	for _, f := range formats {
		if f.Is != nil && f.Is(data) {
			return f.Name, nil
		}
	}
	return Millrace.Name, nil
}
