package video

import (
	"context"
)

// QuickSync is Intel's method of encoding that HardwareAuto tries besides VAAPI and CUDA.
const QuickSync = "qsv"

// hardwareEncoder is an encoder of ffmpeg that returns each picture at once.
type hardwareEncoder struct {
	name    string
	device  string // arguments before the input
	format  string // of the pictures, with further filters
	options string
}

// hardwareEncoders are the encoders by method; "" is software.
var hardwareEncoders = map[string]hardwareEncoder{
	"": {"libx264", "", "yuv420p", "-preset ultrafast -tune zerolatency -crf 23"},
	CUDA: {"h264_nvenc", "", "yuv420p",
		"-preset p1 -tune ull -zerolatency 1 -delay 0 -forced-idr 1 -rc constqp -qp 26"},
	VAAPI: {"h264_vaapi", "-init_hw_device vaapi", "nv12,hwupload",
		"-async_depth 1 -qp 23 -profile:v constrained_baseline"},
	QuickSync: {"h264_qsv", "-init_hw_device qsv", "nv12",
		"-preset veryfast -async_depth 1 -forced_idr 1 -global_quality 23 -profile:v baseline"},
}

// findEncoding tries the methods of encoding allowed by the setting of hardware decoding, by encoding a picture; "" is
// software. A missing encoder is no error: libx264 is fast enough, and watchers come and go.
func findEncoding(ctx context.Context, setting string) string {
	methods := []string{setting}
	if setting == HardwareAuto {
		methods = []string{CUDA, VAAPI, QuickSync}
	}
	for _, m := range methods {
		if _, known := hardwareEncoders[m]; known && m != "" && tryEncoding(ctx, m) == nil {
			return m
		}
	}
	return ""
}

// tryEncoding encodes a picture with a method.
func tryEncoding(parent context.Context, method string) error {
	ctx, cancel := context.WithTimeout(parent, hardwareTimeout)
	defer cancel()
	e, err := newEncoder(ctx, EncoderOptions{Width: trialWidth, Height: trialHeight}, method)
	if err != nil {
		return err
	}
	defer e.Close()
	_, err = e.Encode(make([]byte, 3*trialWidth*trialHeight), 0)
	return err
}

// encoding returns the method of a new encoder, "" for software. encoding waits for Find or the end of ctx.
func (h *Hardware) encoding(ctx context.Context) string {
	if h == nil {
		return ""
	}
	select {
	case <-h.found:
	case <-ctx.Done():
		return ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now().Before(h.pausedEncoding) {
		return ""
	}
	return h.encode
}

// encodingFailed makes new encoders use software for a while, if an encoder with a hardware method has failed.
func (h *Hardware) encodingFailed(method string, err error) {
	if h == nil || method == "" {
		return
	}
	h.mu.Lock()
	h.pausedEncoding = h.now().Add(hardwarePause)
	h.mu.Unlock()
	if h.failure != nil {
		h.failure(err)
	}
}
