package main

import (
	"fmt"
	"time"

	"millrace/client/load"
	"millrace/internal/codec"
	"millrace/stream"
	"millrace/workers"
	"millrace/workers/onnx"
)

// scale maps pixels to 0 to 1.
var scale = [3]float32{1. / 255, 1. / 255, 1. / 255}

// cnnModel configures the small CNN for the frames of renderClip.
func cnnModel(m *onnxModels) []workers.Config {
	c := onnxModel("cnn", m.cnn, onnxBatch)
	c.Image = &stream.ImageSpec{Scale: scale}
	return []workers.Config{c}
}

// onnxVideo compares the processor time of a frame of video through the small CNN with only decoding and running the
// frame, and offers streams of video.
func onnxVideo(b *bench) error {
	f, err := renderClip(videoW, videoH)
	if err != nil {
		return err
	}
	defer f.remove()
	return withONNX(func(m *onnxModels, t *target) error {
		l, err := openLoop(m.cnn, tensor("image", 3, cnnSide, cnnSide), tensor("scores", cnnScores))
		if err != nil {
			return err
		}
		defer l.close()
		if err := b.perPicture(" through the small CNN", t, "cnn", f, l.classify); err != nil {
			return err
		}
		each, err := bareCPU(f.frames, 0, b.round, l.classify)
		if err != nil {
			return err
		}
		return b.cameras(t, f, "cnn", "small CNN", each, 30, 42)
	}, cnnModel)
}

// withCPUModel starts a server with a CPU-bound model: the small CNN, or motion without ONNX Runtime.
func (b *bench) withCPUModel(do func(name string, t *target, model string) error) error {
	if _, err := onnx.Library(); err != nil {
		return do("motion", b.server, "motion")
	}
	return withONNX(func(_ *onnxModels, t *target) error { return do("small CNN", t, "cnn") }, cnnModel)
}

// cnnTarget is how the small CNN gets a picture.
var cnnTarget = codec.Target{Width: cnnSide, Height: cnnSide, Color: codec.RGB, Layout: codec.NCHW, Type: codec.FP32,
	Norm: codec.Norm{Scale: scale}}

// classify is the task of decoding a frame into a batch of one row and running the batch.
func (l *loop) classify() (do func([]byte) error, end func(), err error) {
	b, err := l.bind(1)
	if err != nil {
		return nil, nil, err
	}
	dec := codec.NewDecoder(codec.Limits{})
	return func(frame []byte) error {
			if _, err := dec.Decode(frame, cnnTarget, b.input()); err != nil {
				return err
			}
			return b.run()
		}, func() {
			dec.Close()
			b.close()
		}, nil
}

// cameras measures streams of video into a model: about as many as the machine can serve, and
// more. each is the time of a frame alone, in ms.
func (b *bench) cameras(t *target, f *clip, model, title string, each float64, counts ...int) error {
	c, err := startChild()
	if err != nil {
		return err
	}
	defer c.end()
	length := max(6*b.round, 200*time.Millisecond)
	for _, streams := range counts {
		cfg := load.Config{
			URL: "http://" + t.addr, Model: model, Streams: streams, Rate: videoRate, Dir: f.dir,
			Duration: length, Warmup: length / 6, Grace: 5 * time.Second,
			Options: map[string]string{"policy": "latest"},
		}
		var age, fps, batch, shed []float64
		var sum endings
		for range max(b.rounds/3, 1) {
			all, err := c.load(cfg)
			if err != nil {
				return err
			}
			r := all[0]
			age, fps, batch = append(age, r.Latency.P99), append(fps, r.FPS), append(batch, r.MeanBatch)
			shed = append(shed, float64(r.Dropped)/float64(r.Sent))
			sum.add(r)
		}
		oldest := 50. // ms
		if streams > 30 {
			oldest = 1000./videoRate + 3*median(batch)*each
		}
		name := fmt.Sprintf("%d streams of JPEG video at %d fps, %s: ", streams, videoRate, title)
		b.add(Row{Name: fmt.Sprintf("%sanswers (mean batch %.1f, %.0f %% shed)", name, median(batch),
			100*median(shed)), Unit: "frames/s",
			Bare: float64(streams * videoRate), Millrace: median(fps), Ratio: median(fps) / float64(streams*videoRate)})
		old := Row{Name: name + "p99 age of an answer", Unit: "ms", Bare: oldest, Millrace: median(age)}
		old.Ratio = old.Millrace / oldest
		b.add(old.atMost(1))
		b.add(sum.row(name))
	}
	return nil
}
