package ssf

import (
	"os"
	"path/filepath"

	"millrace/stream"
	"millrace/workers"
)

// configFile is the name of the file that describes an application.
const configFile = "ssf_config.yaml"

// childOptions returns what the child gets of an application: the configuration file, and the options of the command
// line, which are the arguments of the program. It returns nil for another program.
func childOptions(source, chosen string, args []string) (map[string]any, error) {
	file := workers.SourceFile(source)
	if st, err := os.Stat(file); err == nil && st.IsDir() {
		file = filepath.Join(file, configFile)
	}
	if chosen != name && (chosen != "" || filepath.Base(file) != configFile) {
		return nil, nil
	}
	if _, err := os.Stat(file); err != nil {
		if chosen == name || file == source {
			return nil, stream.Errorf(stream.NotFound, "source", "%w", err)
		}
		return nil, nil // a folder with another program
	}
	options, err := Parse(args)
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "args", "are those of gc-ssf: %w", err)
	}
	config, err := Read(file)
	if err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "source", "%w", err)
	}
	return map[string]any{"config": config, "file": file, "args": options.Values()}, nil
}
