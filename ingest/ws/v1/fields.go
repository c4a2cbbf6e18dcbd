package v1

import (
	"millrace/internal/wire"
	"millrace/stream/coded"
)

// frameFields are the names that parts of a frame have in this protocol.
var frameFields = map[string]string{"roi": "ext.roi"}

// openFields and updateFields are the names that the options of a stream have in the
// messages that set them.
var openFields, updateFields = optionFields("open"), optionFields("update")

func optionFields(message string) map[string]string {
	names := map[string]string{"policy": message + ".policy.mode", "codec": message + ".codec", "outputs": message + ".outputs", "model": message + ".model", "version": message + ".version"}
	for _, option := range []string{"max_age_ms", "deadline_ms", "max_fps", "window"} {
		names[option] = message + ".policy." + option
	}
	return names
}

// rename returns err, of doing what m asks for, with the name that the field at
// fault has in m.
func rename(err error, m wire.Message) error {
	switch m.(type) {
	case *wire.Open:
		return coded.Rename(err, openFields)
	case *wire.Update:
		return coded.Rename(err, updateFields)
	}
	return err
}
