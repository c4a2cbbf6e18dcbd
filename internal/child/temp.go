package child

import (
	"fmt"
	"os"
	"slices"

	"millrace/internal/scratch"
)

// makeTemp makes the folder of Temp, names the folder in Env, and lets a Sandbox write there. The result is nil
// without Temp.
func (s *Spec) makeTemp() (*scratch.Folder, error) {
	if !s.Temp {
		return nil, nil
	}
	dir, err := scratch.Make(scratch.Child)
	if err != nil {
		return nil, fmt.Errorf("folder for temporary files: %w", err)
	}
	env := s.Env
	if env == nil {
		env = os.Environ()
	}
	s.Env = append(slices.Clip(env), "TMPDIR="+dir.Path)
	if s.Sandbox != nil {
		confined := *s.Sandbox
		confined.Write = append(slices.Clip(confined.Write), dir.Path)
		s.Sandbox = &confined
	}
	return dir, nil
}

// removeTemp removes the folder of an ended child. Files made there later by surviving descendants stay.
func removeTemp(dir *scratch.Folder) {
	if dir != nil {
		_ = dir.Remove()
	}
}
