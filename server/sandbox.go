package server

import (
	"fmt"
	"log/slog"

	"millrace/config"
	"millrace/internal/child"
	"millrace/stream"
)

// sandbox reports whether the programs of FFmpeg are confined, by the setting and by what the machine lacks for it. It
// logs a lack.
func sandbox(setting string, lacks error, log *slog.Logger) (bool, error) {
	switch {
	case setting == config.SandboxOff:
		return false, nil
	case lacks != nil && setting == config.SandboxRequire:
		return false, stream.Errorf(stream.Unavailable, "sandbox", "is require, and ffmpeg cannot be confined here: %w", lacks)
	case lacks != nil:
		log.Warn("ffmpeg, which reads what clients send, is not confined to what it needs", "setting", "sandbox", "error", lacks)
		return false, nil
	}
	return true, nil
}

// sandboxText says in the log whether the programs of FFmpeg are confined.
func (s *Server) sandboxText() string {
	if !s.sandbox {
		return "none"
	}
	return fmt.Sprintf("landlock %d", child.LandlockABI())
}
