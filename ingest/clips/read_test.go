package clips

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"

	"millrace/internal/video"
)

// read makes a video by ffmpeg, and returns its fragments.
func read(ffmpeg, path string) (list []video.Fragment, err error) {
	out, err := exec.Command(ffmpeg, "-nostdin", "-v", "error", "-f", "lavfi", "-i",
		"testsrc2=size=160x120:rate=10:duration=8", "-c:v", "libx264", "-g", "10", "-bf", "0", "-sc_threshold", "0",
		"-pix_fmt", "yuv420p", path).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	r, err := video.Open(context.Background(), video.Options{URL: path, Packets: func(f video.Fragment) {
		f.Data = bytes.Clone(f.Data)
		list = append(list, f)
	}})
	if err != nil {
		return nil, err
	}
	data := make([]byte, r.FrameSize())
	for err == nil {
		_, err = r.Next(data)
	}
	_ = r.Close()
	if err == io.EOF {
		err = nil
	}
	return list, err
}
