package v1

import (
	"millrace/internal/wire"
	"millrace/stream/coded"
)

// frameFields are the names of the parts of a frame in this protocol.
var frameFields = map[string]string{"roi": "ext.roi"}

// openFields and updateFields are the names of a stream's options in open and update messages.
var openFields, updateFields = optionFields("open"), optionFields("update")

func optionFields(message string) map[string]string {
	names := map[string]string{"policy": message + ".policy.mode", "codec": message + ".codec",
		"outputs": message + ".outputs", "model": message + ".model", "version": message + ".version",
		"rules": message + ".rules"}
	for _, option := range []string{"max_age_ms", "deadline_ms", "max_fps", "window"} {
		names[option] = message + ".policy." + option
	}
	return names
}

// rename returns err, an error of handling m, with the name of the field in m.
func rename(err error, m wire.Message) error {
	switch m.(type) {
	case *wire.Open:
		return coded.Rename(err, openFields)
	case *wire.Update:
		return coded.Rename(err, updateFields)
	}
	return err
}
