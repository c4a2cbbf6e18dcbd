package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"time"

	"millrace/internal/codec"
	"millrace/workers/onnx"
)

// secondModel compares the processor time per frame added by a second model on the same cameras, the small CNN beside
// motion, with the time of the second model alone.
func secondModel(b *bench) error {
	if _, err := onnx.Library(); err != nil {
		return err
	}
	// The smaller pictures make the difference of two measurements more exact.
	cameras, size := pulledCameras[0].cameras, chunkSizes[0]
	f, err := b.footageOf("h264", size[0], size[1])
	if err != nil {
		return err
	}
	camera, err := serveLive(f)
	if err != nil {
		return err
	}
	defer camera.Close()
	return withONNX(func(m *onnxModels, _ *target) error {
		l, err := openLoop(m.cnn, tensor("image", 3, cnnSide, cnnSide), tensor("scores", cnnScores))
		if err != nil {
			return err
		}
		defer l.close()
		pictures, err := f.pictures("nv12", sharedWidth, sharedHeight, sharedWidth*sharedHeight*3/2)
		if err != nil {
			return err
		}
		models := strings.TrimSuffix(motionModel, "]\n") + ", " + strings.TrimPrefix(cnnLines(m), "models: [")
		var alone, one, added, ratios []float64
		for i := range max(b.rounds/3, 1) {
			var bare float64
			var with [2]cost
			turns := []func() error{
				func() (err error) {
					bare, err = bareCPU(pictures, float64(videoRate*cameras), b.span()/2, l.classifyNV12)
					return err
				},
				func() (err error) {
					with[0], err = b.liveCost(models, camera, cameras, "motion")
					return err
				},
				func() (err error) {
					with[1], err = b.liveCost(models, camera, cameras, "motion", "cnn")
					return err
				},
			}
			for k := range turns {
				if err := turns[(i+k)%len(turns)](); err != nil {
					return err
				}
			}
			more := 2*with[1].total() - with[0].total() // each frame is answered twice
			alone, one, added, ratios = append(alone, bare), append(one, with[0].total()), append(added, more),
				append(ratios, more/bare)
		}
		row := Row{Name: fmt.Sprintf("%s, %d live cameras at %d fps: CPU a frame that the small CNN adds to motion "+
			"(%s), against it alone", f.name(), cameras, videoRate, figure(median(one))),
			Unit: "ms", Bare: median(alone), Millrace: median(added), Ratio: median(ratios)}
		b.add(row.atMost(1.15))
		return nil
	}, cnnModel)
}

// sharedWidth and sharedHeight are the size of the picture for motion and the CNN.
const sharedWidth, sharedHeight = 320, 240

// classifyNV12 is classify for raw frames of the shared size.
func (l *loop) classifyNV12() (do func([]byte) error, end func(), err error) {
	b, err := l.bind(1)
	if err != nil {
		return nil, nil, err
	}
	dec := codec.NewDecoder(codec.Limits{})
	return func(frame []byte) error {
			if _, err := dec.Convert(frame, codec.NV12, sharedWidth, sharedHeight, cnnTarget, b.input()); err != nil {
				return err
			}
			return b.run()
		}, func() {
			dec.Close()
			b.close()
		}, nil
}

// liveServer is a server of live cameras, one at each path.
type liveServer struct {
	http.Server
	url string
}

// serveLive serves a clip like a camera: without an end, from now, in real time.
func serveLive(f footage) (*liveServer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &liveServer{url: "http://" + ln.Addr().String()}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "video/mp2t")
		cmd := exec.CommandContext(r.Context(), "ffmpeg", "-nostdin", "-loglevel", "error", "-re", "-stream_loop",
			"-1", "-i", f.path, "-c", "copy",
			"-flush_packets", "1", "-f", "mpegts", "pipe:1")
		cmd.Stdout = flushing{w, http.NewResponseController(w)}
		_ = cmd.Run() // ends with the connection
	})
	go s.Serve(ln) // ends with Close
	return s, nil
}

// flushing sends everything at once.
type flushing struct {
	http.ResponseWriter
	c *http.ResponseController
}

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	return n, errors.Join(err, f.c.Flush())
}

// liveCost measures a server that runs models on the frames of live cameras.
func (b *bench) liveCost(lines string, camera *liveServer, cameras int, models ...string) (c cost, err error) {
	text := strings.Builder{}
	text.WriteString(lines + "sources: {allow_private: true}\nstreams:\n")
	for i := range cameras {
		for _, m := range models {
			fmt.Fprintf(&text, "  - {name: %s%d, source: %q, model: %s}\n", m, i,
				fmt.Sprintf("%s/%d.ts", camera.url, i), m)
		}
	}
	s, err := startServer(text.String())
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	if err := s.answered(videoRate / 2); err != nil {
		return c, err
	}
	time.Sleep(b.span() / 6)
	return s.costOf(b.span())
}
