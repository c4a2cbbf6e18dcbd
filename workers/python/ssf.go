package python

import (
	"os"
	"path/filepath"

	"millrace/internal/ssf"
	"millrace/stream"
	"millrace/workers"
)

// ssfOptions returns what the child is told of an application of Simple Server Framework: its
// configuration file, and the options of its command line, which are the program's arguments. It
// is nil for another program.
func (s *settings) ssfOptions(source string) (map[string]any, error) {
	file := workers.SourceFile(source)
	if st, err := os.Stat(file); err == nil && st.IsDir() {
		file = filepath.Join(file, ssfConfig)
	}
	if s.Style != "ssf" && (s.Style != "" || filepath.Base(file) != ssfConfig) {
		return nil, nil
	}
	if _, err := os.Stat(file); err != nil {
		if s.Style == "ssf" || file == source {
			return nil, stream.Errorf(stream.NotFound, "source", "%w", err)
		}
		return nil, nil // a folder with another program
	}
	options, err := ssf.Parse(s.Args)
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "args", "are those of gc-ssf: %w", err)
	}
	config, err := ssf.Read(file)
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "source", "%w", err)
	}
	return map[string]any{"config": config, "file": file, "args": options.Values()}, nil
}
