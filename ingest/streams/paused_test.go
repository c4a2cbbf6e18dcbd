package streams_test

import (
	"strings"
	"testing"
	"time"

	"millrace/ingest/streams"
	"millrace/stream"
)

// everyFour is the policy of the paused streams in these tests: four frames wait.
var everyFour = stream.Policy{Mode: stream.Every, Window: 4}

// The model of a paused video changes. After the resume, the first model answers the frames that waited for this
// model, and the second model answers the other frames.
func TestModelOfAPausedVideoChanges(t *testing.T) {
	r := start(t, streams.Options{})
	others(r, "a")
	r.streams.Add(t, streams.Config{Name: "clip", Source: clip(t, 4), Model: "eyes", Paused: true, Policy: everyFour})
	r.until("clip", "a full window", func(s shown) bool { return s.Frames >= 4 })
	r.want(200, "PATCH", "/v2/streams/clip", `{"model":"a"}`)
	r.want(200, "PATCH", "/v2/streams/clip", `{"paused":false}`)
	if s := r.over("clip", "ended"); s.Frames != 40 || s.Results != 40 {
		t.Errorf("%+v", s)
	}
}

// The model of a paused video changes after the last frame was read: when the stream is resumed, the first model
// answers all frames, and the stream ends.
func TestModelOfAPausedVideoChangesAtItsEnd(t *testing.T) {
	r := start(t, streams.Options{})
	others(r, "a")
	r.streams.Add(t, streams.Config{Name: "clip", Source: clip(t, 1), Model: "eyes", Paused: true,
		Policy: stream.Policy{Mode: stream.Every, Window: 16}})
	r.until("clip", "all frames wait", func(s shown) bool { return s.Frames == 10 })
	r.want(200, "PATCH", "/v2/streams/clip", `{"model":"a"}`)
	r.until("clip", "the other model is open", func(s shown) bool {
		return s.Models[0].Model == "a" && s.Models[0].State != "connecting"
	})
	r.want(200, "PATCH", "/v2/streams/clip", `{"paused":false}`)
	if s := r.over("clip", "ended"); s.Frames != 10 || s.Results != 10 {
		t.Errorf("%+v", s)
	}
}

// pausedCamera adds a paused camera stream with the model eyes and four waiting frames, then changes the model to a,
// which also gets four waiting frames.
func pausedCamera(t *testing.T) *rig {
	camera := newMotionJPEG(t, 64, 48) // is closed after the server
	r := start(t, streams.Options{AllowPrivate: true})
	others(r, "a", "b")
	r.streams.Add(t, streams.Config{Name: "door", Source: camera.URL, Model: "eyes", Paused: true, Policy: everyFour})
	r.until("door", "a full window", func(s shown) bool { return s.Drops["flow_control"] > 0 })
	r.want(200, "PATCH", "/v2/streams/door", `{"model":"a"}`)
	r.until("door", "a full window of the other model", func(s shown) bool {
		return s.Models[0].Drops["flow_control"] > 0
	})
	camera.hold()
	return r
}

// The model of a paused camera changes. After the resume, both models answer their waiting frames.
func TestModelOfAPausedCameraChanges(t *testing.T) {
	r := pausedCamera(t)
	r.want(200, "PATCH", "/v2/streams/door", `{"paused":false}`)
	s := r.until("door", "all are answered", func(s shown) bool { return s.Results == 8 })
	if s.Drops["closed"] != 0 {
		t.Errorf("%+v", s)
	}
	r.exact("door", 1)
}

// Removing a paused stream ends the stream, even with frames waiting for a removed model. The rig's end checks for
// leaks.
func TestPausedStreamIsRemoved(t *testing.T) {
	r := pausedCamera(t)
	r.want(204, "DELETE", "/v2/streams/door", "")
}

// The server ends while a removed model of a paused stream has waiting frames.
func TestServerEndsWhileAStreamIsPaused(t *testing.T) {
	pausedCamera(t).stop()
}

// Unloading a model removed from a paused stream ends the model's frames.
func TestRemovedModelOfAPausedStreamIsUnloaded(t *testing.T) {
	r := pausedCamera(t)
	if err := r.models.Unload(t.Context(), "eyes", ""); err != nil {
		t.Fatal(err)
	}
	r.until("door", "the frames of the removed model have ended", func(s shown) bool { return s.Errors == 4 })
}

// A paused stream refuses model changes once 32 removed models have a waiting frame, and allows model changes again
// after the resume.
func TestManyModelChangesOfAPausedStream(t *testing.T) {
	camera := motionJPEGEvery(t, 5*time.Millisecond, 64, 48)
	r := start(t, streams.Options{AllowPrivate: true})
	others(r, "a")
	r.streams.Add(t, streams.Config{Name: "door", Source: camera.URL, Model: "eyes", Paused: true,
		Policy: stream.Policy{Mode: stream.Every, Window: 1}})
	next := func(change int) string { return `{"model":"` + []string{"a", "eyes"}[change%2] + `"}` }
	for change := range 32 {
		r.until("door", "a frame waits for the model", func(s shown) bool {
			return s.Models[0].Drops["flow_control"] > 0
		})
		r.want(200, "PATCH", "/v2/streams/door", next(change))
	}
	r.until("door", "a frame waits for the model", func(s shown) bool { return s.Models[0].Drops["flow_control"] > 0 })
	if text := r.want(409, "PATCH", "/v2/streams/door", next(32)); !strings.Contains(text, "resume") {
		t.Error(text)
	}
	r.want(200, "PATCH", "/v2/streams/door", `{"max_fps":5}`)
	r.want(200, "PATCH", "/v2/streams/door", `{"paused":false}`)
	r.until("door", "the removed models have left", func(s shown) bool {
		code, _ := r.call("PATCH", "/v2/streams/door", next(32))
		return code == 200 && s.Results >= 32
	})
}
