package streams

import (
	"encoding/json"
	"testing"
)

// The log shows the values of a change in JSON as the client wrote the change, without values that may contain
// secrets.
func TestChangeText(t *testing.T) {
	var object map[string]any
	text := `{"source": "rtsp://user:geheim@h/", "sinks": {"webhook_secret": "geheim"}, "models": [{"model": "det", ` +
		`"max_fps": 2}], "paused": true, "mode": null, "model": "a b=\"c\""}`
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	want := `mode=null model="a b=\"c\"" models=[{"max_fps":2,"model":"det"}] paused=true sinks source`
	if got := changeText(object); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
