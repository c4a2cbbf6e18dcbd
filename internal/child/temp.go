package child

import (
	"fmt"
	"os"
	"slices"
)

// makeTemp makes the folder of Temp, names it in Env, and lets a Sandbox write there. It returns "" without Temp.
func (s *Spec) makeTemp() (string, error) {
	if !s.Temp {
		return "", nil
	}
	dir, err := os.MkdirTemp("", "millrace-child-")
	if err != nil {
		return "", fmt.Errorf("folder for temporary files: %w", err)
	}
	env := s.Env
	if env == nil {
		env = os.Environ()
	}
	s.Env = append(slices.Clip(env), "TMPDIR="+dir)
	if s.Sandbox != nil {
		confined := *s.Sandbox
		confined.Write = append(slices.Clip(confined.Write), dir)
		s.Sandbox = &confined
	}
	return dir, nil
}

// removeTemp removes the folder of a child that has ended. What a process that has left its group still makes there stays.
func removeTemp(dir string) {
	if dir != "" {
		_ = os.RemoveAll(dir)
	}
}
