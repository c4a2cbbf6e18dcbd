package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"millrace/client/load"
	"millrace/workers/onnx"
)

const (
	liveStreams  = 10
	liveShare    = 0.5 // of the model's capacity, offered by the live streams
	liveTasks    = 4   // that run or wait at any time
	taskPictures = 200 // of a task
)

// tasksBesideLive compares the age of the answers to live streams while tasks with archives of pictures run on the
// same model with the age without tasks.
func tasksBesideLive(b *bench) error {
	dir, err := os.MkdirTemp(b.dir, "live")
	if err != nil {
		return err
	}
	picture := filepath.Join(dir, "picture.jpg")
	if err := writePicture(picture, cnnSide, cnnSide); err != nil {
		return err
	}
	archive, err := archiveOf(picture, taskPictures)
	if err != nil {
		return err
	}
	delay := fmt.Sprintf("models: [{name: live, source: delay, instances: 2, fixed: %gms, per_item: %gms, "+
		"batching: {max_size: %d}}]\n", delayFixed, delayPerItem, delayBatch)
	if err := b.besideTasks(dir, "delay", delay, picture, archive); err != nil {
		return err
	}
	if _, err := onnx.Library(); err != nil {
		return nil
	}
	m, err := writeModels()
	if err != nil {
		return err
	}
	defer m.remove()
	cnn := fmt.Sprintf("models: [{name: live, source: %q, instances: %d, threads: %d, batching: {max_size: %d}, "+
		"input: {image: {scale: %g}}}]\n", m.cnn, onnxInstances, onnxThreads, onnxBatch, scale[0])
	return b.besideTasks(dir, "small CNN", cnn, picture, archive)
}

// besideTasks adds the rows of a server with the model named live.
func (b *bench) besideTasks(dir, name, lines, picture string, archive []byte) (err error) {
	folder, err := os.MkdirTemp(dir, "data")
	if err != nil {
		return err
	}
	s, err := startServer(fmt.Sprintf("data: %s\ntasks: {sync: interval}\n%s", filepath.Join(folder, "data"), lines))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	client, err := startChild()
	if err != nil {
		return err
	}
	defer client.end()
	length := max(6*b.round, time.Second)
	cfg := load.Config{URL: "http://" + s.addr, Model: "live", Streams: liveStreams, File: picture, Duration: length,
		Warmup: length / 6, Options: map[string]string{"codec": "jpeg"}}
	r, err := client.capacity(cfg)
	if err != nil {
		return err
	}
	cfg = with(cfg, "policy", "latest")
	cfg.Rate = liveShare * r.FPS / liveStreams
	age := func() (float64, error) {
		all, err := client.load(cfg)
		if err == nil && all[0].Answered == 0 {
			err = errors.New("no live frame was answered")
		}
		if err != nil {
			return 0, err
		}
		return all[0].Latency.P99, nil
	}
	c := newTaskClient(s.addr)
	pictures, seconds := 0., 0.
	beside := func(time.Duration) (float64, error) {
		began, stop := time.Now(), c.keepBusy(archive)
		v, err := age()
		n, failed := stop()
		pictures, seconds = pictures+n, seconds+time.Since(began).Seconds()
		return v, errors.Join(err, failed)
	}
	row, err := b.pair(name+": p99 age of live frames beside tasks of the model, against without tasks", "ms",
		func(time.Duration) (float64, error) { return age() }, beside)
	if err != nil {
		return err
	}
	if pictures == 0 {
		return errors.New("no picture of a task was answered")
	}
	b.add(row.atMost(1.2))
	b.add(Row{Name: name + ": pictures of tasks beside live frames", Unit: "frames/s", Millrace: pictures / seconds})
	return nil
}

// keepBusy submits tasks with an archive of pictures until stop, which cancels the tasks, and returns the number of
// pictures that were answered.
func (c *taskClient) keepBusy(archive []byte) (stop func() (float64, error)) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	pictures, errs := 0., []error(nil)
	for range liveTasks {
		wg.Go(func() {
			for {
				n, ended, err := c.runArchive(archive, done)
				mu.Lock()
				pictures += n
				errs = append(errs, err)
				mu.Unlock()
				if ended || err != nil {
					return
				}
			}
		})
	}
	return func() (float64, error) {
		close(done)
		wg.Wait()
		return pictures, errors.Join(errs...)
	}
}

// runArchive submits a task and waits for its end, or cancels the task when done is closed; ended reports the latter.
func (c *taskClient) runArchive(archive []byte, done <-chan struct{}) (pictures float64, ended bool, err error) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.Header.SetMethod(http.MethodPost)
	req.SetRequestURI(c.base + "?model=live")
	req.Header.SetContentType("application/zip")
	req.SetBodyRaw(archive)
	var t struct {
		taskState
		Progress struct{ Done float64 } `json:"progress"`
	}
	if err := c.send(req, resp, &t); err != nil {
		return 0, false, err
	}
	path := "/" + t.ID
	for {
		select {
		case <-done:
			ended = true
			_ = c.do("POST", path+"/cancel", "", nil) // an error if the task has ended, as the state tells
		default:
		}
		err := c.do("GET", path+"?wait=250ms", "", &t) // as clients wait, without a poll every few milliseconds
		switch {
		case err != nil:
			return 0, ended, err
		case t.State == "finished" || ended && t.State != "failed":
			return t.Progress.Done, ended, nil
		case t.State != "queued" && t.State != "running":
			return 0, ended, fmt.Errorf("a task is %s: %s", t.State, t.Error.Message)
		}
	}
}

// writePicture writes a JPEG file.
func writePicture(name string, width, height int) error {
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	for i := range width * height {
		x, y := i%width, i/width
		m.Set(x, y, color.RGBA{uint8(x), uint8(y), uint8(x * y), 255})
	}
	var data bytes.Buffer
	if err := jpeg.Encode(&data, m, nil); err != nil {
		return err
	}
	return os.WriteFile(name, data.Bytes(), 0o600)
}

// archiveOf returns a zip archive with n copies of a file.
func archiveOf(file string, n int) ([]byte, error) {
	contents, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var data bytes.Buffer
	z := zip.NewWriter(&data)
	for i := range n {
		w, err := z.CreateHeader(&zip.FileHeader{Name: fmt.Sprintf("%d.jpg", i), Method: zip.Store})
		if err == nil {
			_, err = w.Write(contents)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return data.Bytes(), nil
}
