// Package python is the worker kind python: services and applications written in Python run in
// child processes, which package python of the module carries the code of. It owns the choice of
// the interpreter and what the child is told of the program.
//
// It must not know what is in a program: the child describes it.
package python

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"millrace/internal/confine"
	files "millrace/python"
	"millrace/stream"
	"millrace/workers"
	"millrace/workers/process"
)

func init() {
	workers.Register(workers.Kind{
		Name:        "python",
		Doc:         "a class or function in Python, or an application of another system, in child processes",
		New:         func() workers.Worker { return process.NewWorker(specOf) },
		Settings:    func() any { return new(settings) },
		Loads:       loads,
		Folder:      describes,
		File:        "model.py",
		ExtraParams: "parameters",
		HostParams:  []string{"python", "venv"},
		Memory:      process.Memory(),
		Ahead:       true,
	})
}

type settings struct {
	Python string           `yaml:"python" unset:"python3" help:"interpreter (3.9 or newer): a path, or a name in PATH"`
	Venv   string           `yaml:"venv" path:"file" unset:"none" help:"folder of the virtual environment with the program's interpreter and packages"`
	Class  string           `yaml:"class" unset:"the only one" help:"class or function to serve, when the file has several"`
	Style  styleName        `yaml:"style" unset:"found in the program" advanced:"yes" help:"the system for which the program was written"`
	Args   []string         `yaml:"args" example:"--verbose" advanced:"yes" help:"arguments of the program (sys.argv)"`
	Values []string         `yaml:"parameters" example:"threshold=0.5" help:"parameters of setup, as NAME=VALUE; a JSON value becomes a number, list and so on"`
	Stage  string           `yaml:"stage" unset:"none" advanced:"yes" help:"stage of a program with several stages; set by the server"`
	Common process.Settings `yaml:",inline"`
}

// Validate implements the validation of workers.Kind.
func (s *settings) Validate() error {
	if s.Python != "" && s.Venv != "" {
		return stream.Errorf(stream.InvalidArgument, "venv",
			"is set, and so is python: the virtual environment has its own interpreter")
	}
	for _, v := range s.Values {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			return stream.Errorf(stream.InvalidArgument, "parameters", "has %q, which is not NAME=VALUE", v)
		}
	}
	return s.Common.Validate()
}

// loads reports whether source is a program in Python: a .py file, perhaps with :CLASS behind it,
// MODULE:CLASS, or the description of an application or the folder with it.
func loads(source string) bool {
	file := workers.SourceFile(source)
	if file == "" {
		return !strings.Contains(source, "://") && !workers.IsHostPort(source)
	}
	switch strings.ToLower(filepath.Ext(file)) {
	case ".py":
		return true
	case ".yaml", ".yml":
		return describes(filepath.Base(file))
	}
	return slices.ContainsFunc(styles, func(s Style) bool {
		_, err := os.Stat(filepath.Join(file, s.File))
		return s.File != "" && err == nil
	})
}

// specOf returns what the worker starts.
func specOf(env *workers.Env) (process.Spec, error) {
	s := env.Settings.(*settings)
	if env.Source == "" {
		return process.Spec{}, stream.Errorf(stream.InvalidArgument, "source",
			"is the kind python: want the program, such as ./service.py")
	}
	interpreter, err := s.interpreter()
	if err != nil {
		return process.Spec{}, err
	}
	dir, err := files.Unpack("")
	if err != nil {
		return process.Spec{}, stream.Errorf(stream.Internal, "", "%w", err)
	}
	source, own := env.Source, []string{dir}
	if file := workers.SourceFile(source); file != "" {
		abs, err := filepath.Abs(file) // the program may have a working directory of its own
		if err != nil {
			return process.Spec{}, stream.Errorf(stream.InvalidArgument, "source", "%w", err)
		}
		if own = append(own, confine.Folder(abs)); !isFolder(abs) {
			own = append(own, abs)
		}
		source = abs + source[len(file):]
	} else if s.Common.Dir == "" { // where Python looks for the module
		cwd, err := os.Getwd()
		if err != nil {
			return process.Spec{}, stream.Errorf(stream.Internal, "", "%w", err)
		}
		own = append(own, confine.Folder(cwd))
	}
	args := s.Args
	if args == nil {
		args = []string{}
	}
	spec := process.Spec{
		Path: interpreter,
		Args: []string{"-u", filepath.Join(dir, filepath.FromSlash(files.Child))},
		Env:  []string{"PYTHONDONTWRITEBYTECODE=1"},
		Options: map[string]any{"source": source, "class": s.Class, "style": string(s.Style), "argv": args,
			"stage": s.Stage},
		Params:   s.parameters(),
		Settings: &s.Common,
		Files:    own,
		Explain:  explain,
	}
	for _, of := range styles {
		if of.Options == nil {
			continue
		}
		options, err := of.Options(source, string(s.Style), s.Args)
		if err != nil {
			return process.Spec{}, err
		}
		if options != nil {
			spec.Options[of.Name] = options
		}
	}
	if s.Venv != "" {
		spec.Env = append(spec.Env, "VIRTUAL_ENV="+s.Venv)
	}
	return spec, nil
}

func isFolder(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// interpreter returns the path of the interpreter.
func (s *settings) interpreter() (string, error) {
	if s.Venv != "" {
		path := filepath.Join(s.Venv, "bin", "python")
		if _, err := os.Stat(path); err != nil {
			return "", stream.Errorf(stream.NotFound, "venv", "%s has no bin/python: make it with python3 -m venv %s",
				s.Venv, s.Venv)
		}
		return filepath.Abs(path)
	}
	name := s.Python
	if name == "" {
		name = "python3"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", stream.Errorf(stream.NotFound, "python", "%s was not found: install Python 3.9 or newer, or set "+
			"python or venv to where it is: in the configuration of the model, or at millrace serve (of a file that "+
			"a request sends, of the model of that name; a request cannot set them) (%w)", name, err)
	}
	return filepath.Abs(path)
}

// parameters returns what setup gets.
func (s *settings) parameters() map[string]any {
	out := map[string]any{}
	for _, v := range s.Values {
		name, text, _ := strings.Cut(v, "=")
		var value any
		if json.Unmarshal([]byte(text), &value) != nil {
			value = text
		}
		out[name] = value
	}
	return out
}

// explain names the setting of the interpreter in errors about what was started.
func explain(err error) error {
	var e *stream.Error
	if errors.As(err, &e) && e.Field == "command" {
		return &stream.Error{Code: e.Code, Field: "python", Msg: e.Msg, Err: e.Err}
	}
	return err
}
