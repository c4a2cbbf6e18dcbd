package build

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"millrace/apps"
	"millrace/internal/setting"
)

// Settings are the settings of an application in the server's own configuration file.
type Settings struct {
	Setup  []string `yaml:"setup" advanced:"yes" example:"python3 download.py" help:"commands of millrace app build, for the shell in the folder of the file; the server ignores them"`
	Tests  []string `yaml:"test" advanced:"yes" example:"python3 check.py" help:"commands of millrace app test, likewise"`
	System []string `yaml:"build_system_dependencies" advanced:"yes" example:"libgomp1" help:"Debian packages needed by the application, for millrace app build"`
	Files  []string `yaml:"files" advanced:"yes" example:"models/face.onnx=https://models.example.org/face.onnx#sha256=…" help:"files that millrace app build downloads, as PATH=https://HOST/PATH#sha256=HEX; PATH is in the folder of the file"`
}

func init() { setting.Register[Settings](setting.Server, "application") }

// Validate implements the validation of config.Config.Parts.
func (s *Settings) Validate() error {
	if err := CheckSystem(s.System); err != nil {
		return err
	}
	_, err := ParseFiles(s.Files)
	return err
}

// Needs returns the needs of an application with the settings.
func (s *Settings) Needs(file string) *apps.Needs {
	n := &apps.Needs{System: s.System}
	n.Files, _ = ParseFiles(s.Files) // Validate has checked the files
	for _, line := range s.Setup {
		n.Setup = append(n.Setup, apps.Shell(line))
	}
	for _, line := range s.Tests {
		n.Tests = append(n.Tests, apps.Shell(line))
	}
	n.Requirements = Found(filepath.Dir(file))
	return n
}

// Found returns the file with the requirements in a folder, if any.
func Found(dir string) []string {
	for _, name := range []string{"requirements.txt", project} {
		file := filepath.Join(dir, name)
		if st, err := os.Stat(file); err == nil && !st.IsDir() && (name != project || hasDependencies(file)) {
			return []string{file}
		}
	}
	return nil
}

// CheckSystem refuses names that are no names of Debian packages.
func CheckSystem(names []string) error {
	if i := slices.IndexFunc(names, func(n string) bool { return !debian.MatchString(n) }); i >= 0 {
		return fmt.Errorf("build_system_dependencies: %q is no name of a Debian package", names[i])
	}
	return nil
}
