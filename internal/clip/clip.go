// Package clip renders a short video of moving shapes and its ground truth: the place of each shape in every frame.
// Demonstrations and tests of detectors use the video. The package must not know detectors.
package clip

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Write renders a clip: motion.mp4 and motion.json in dir; a missing dir is made. Write writes both files or neither:
// the files are renamed into place at the end. progress gets a line for each tenth of the frames. ffmpeg is the
// program's name or path.
func Write(ctx context.Context, s Settings, ffmpeg, dir string, progress io.Writer) (clip string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(dir, ".render-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()

	enc, err := startEncoder(ctx, ffmpeg, s, filepath.Join(work, "motion.mp4"))
	if err != nil {
		return "", err
	}
	truth, err := render(ctx, s, enc, progress)
	if err := errors.Join(err, enc.Close()); err != nil {
		return "", err
	}
	data, err := json.Marshal(truth)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(work, "motion.json"), append(data, '\n'), 0o644); err != nil {
		return "", err
	}
	for _, name := range []string{"motion.json", "motion.mp4"} {
		if err := os.Rename(filepath.Join(work, name), filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "motion.mp4"), nil
}
