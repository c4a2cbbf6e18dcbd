package frames_test

import (
	"path/filepath"
	"testing"

	"millrace/config"
	"millrace/ingest/streams"
	"millrace/internal/servertest"
	"millrace/internal/video/videotest"
	"millrace/server"
	"millrace/workers"
)

// The setting sandbox reaches the ffmpeg of a server stream; the sandbox is on if the kernel supports sandboxes.
func TestSandboxOfStreams(t *testing.T) {
	videotest.NeedSandbox(t)
	clip := filepath.Join(t.TempDir(), "clip.mp4")
	servertest.Film(t, clip)
	for setting, want := range map[string]bool{"": true, config.SandboxRequire: true, config.SandboxOff: false} {
		_, end := servertest.RunWith(t, server.Config{
			HTTP: "127.0.0.1:0", GRPC: "off", Sandbox: setting,
			Models:  []workers.Config{{Name: "echo", Source: "identity"}},
			Streams: []streams.Config{{Name: "door", Source: clip, Model: "echo", FPS: 1, Loop: true}},
		})
		if videotest.Confined(t) != want {
			t.Errorf("sandbox %q: confined is not %v", setting, want)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}
