//go:build unix && !linux

package child

import "os"

// stdinWriter writes slices to a pipe one by one.
type stdinWriter struct{ f *os.File }

func newStdinWriter(f *os.File) (*stdinWriter, error) { return &stdinWriter{f}, nil }

func (s *stdinWriter) write(parts [][]byte) error {
	for _, p := range parts {
		if _, err := s.f.Write(p); err != nil {
			return err
		}
	}
	return nil
}
