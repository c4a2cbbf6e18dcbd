package sources

import (
	"encoding/json"

	"millrace/internal/setting"
	"millrace/internal/video"
)

// Input says what a subscription reads.
type Input struct {
	Address  string
	Settings Settings // of the kind of the address
	// most frames per second; 0 = all. A shared source is read at the highest rate, and each subscription takes its
	// own.
	FPS        float64
	Loop       bool
	MaxPixels  int  // largest width times height of a video; 0 = no limit
	PublicOnly bool // only public addresses may be used
}

// key identifies a shared source: inputs with equal keys share a source. "" = the source is not shared.
func (i *Input) key() string {
	scheme, _, err := Classify(i.Address)
	if err != nil || i.Loop || scheme == video.SchemeFile || scheme == schemeFolder {
		return ""
	}
	settings := setting.Filled(i.Settings)
	if v, ok := settings.(*Video); ok {
		v.Transport = v.transport(i.Address) // unset is the same as its default
	}
	text, err := json.Marshal(struct {
		Address    string
		Settings   map[string]any
		PublicOnly bool
	}{i.Address, setting.TableOf("", settings).Object(), i.PublicOnly})
	if err != nil {
		return ""
	}
	return string(text)
}
