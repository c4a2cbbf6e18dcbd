package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"time"

	"millrace/internal/video/videotest"
)

// startCamera is an RTSP camera under test.
type startCamera struct {
	key       int // seconds between key frames
	transport string
}

func (c startCamera) name() string {
	return fmt.Sprintf("RTSP over %s, H.264 %dx%d, a key frame each %d s: ", c.transport, startWidth, startHeight,
		c.key)
}

// startCameras are the cameras of the rows; startWidth and startHeight are the size of their pictures, 25 per second.
var (
	startCameras            = []startCamera{{1, "tcp"}, {2, "tcp"}, {2, "udp"}, {5, "tcp"}, {10, "tcp"}}
	startWidth, startHeight = 1280, 720
)

// cameraStarts measures the time from an RTSP camera's first key frame to the first answer, and the age of the
// answered picture then. A camera sends a key frame immediately after taking the picture, and clients connect between
// two key frames.
func cameraStarts(b *bench) error {
	if err := videotest.NoRTSP(); err != nil {
		for _, c := range startCameras {
			b.add(Row{Name: c.name() + "time to the first answer (no RTSP server is installed)", Unit: "ms"})
			b.add(Row{Name: c.name() + "age of the first answer (no RTSP server is installed)", Unit: "ms"})
		}
		return nil
	}
	s, err := startServer(motionModel + "sources: {allow_private: true}\n")
	if err != nil {
		return err
	}
	b.step("time to the first answer")
	for _, c := range startCameras {
		if err == nil {
			err = b.firstAnswers(s, c)
		}
	}
	return errors.Join(err, s.end())
}

// firstAnswers opens a camera several times.
func (b *bench) firstAnswers(s *serverProcess, c startCamera) error {
	clip := filepath.Join(b.dir, fmt.Sprintf("key%d.mp4", c.key))
	if err := videotest.Numbered(clip, startWidth, startHeight, 20*25, c.key*25, 0); err != nil {
		return err
	}
	options := []string{}
	if c.transport == "udp" {
		options = append(options, "udp")
	}
	camera, err := videotest.StartCamera(clip, options...)
	if err != nil {
		return err
	}
	defer camera.Stop()
	every := time.Duration(c.key) * time.Second
	var waits, ages []float64
	for range max(b.rounds/3, 1) {
		time.Sleep(time.Duration(rand.Float64() * float64(every)))
		pts, at, err := s.firstAnswer(camera.Addr, c.transport)
		if err != nil {
			return err
		}
		// The first frame is the key frame, the origin of the times. No earlier picture was answered.
		since := at.Sub(camera.Begun)
		key := (since - pts) / every * every
		waits = append(waits, (since-key).Seconds()*1000)
		ages = append(ages, (since-key-pts).Seconds()*1000)
	}
	wait := Row{Name: c.name() + "time to the first answer, from the first key frame", Unit: "ms",
		Millrace: median(waits), Limit: "<= 1000"}
	wait.Met = wait.Millrace <= 1000
	b.add(wait)
	b.add(Row{Name: c.name() + "age of the first answer", Unit: "ms", Millrace: median(ages)})
	return nil
}

// firstAnswer adds a stream and returns the time of its first answered frame on the source's clock, and the time of
// the answer.
func (s *serverProcess) firstAnswer(camera, transport string) (pts time.Duration, at time.Time, err error) {
	const name = "camera"
	base := "http://" + s.addr + "/v2/streams"
	body, err := json.Marshal(map[string]string{"name": name, "source": "rtsp://" + camera,
		"rtsp_transport": transport, "model": "motion"})
	if err != nil {
		return 0, at, err
	}
	resp, err := http.Post(base, "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, at, err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return 0, at, fmt.Errorf("adding a stream: %s", resp.Status)
	}
	defer func() { err = errors.Join(err, remove(base+"/"+name)) }()
	req, err := http.NewRequest(http.MethodGet, base+"/"+name+"/results", nil)
	if err != nil {
		return 0, at, err
	}
	req.Header.Set("Accept", "application/x-ndjson")
	if resp, err = http.DefaultClient.Do(req); err != nil {
		return 0, at, err
	}
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadBytes('\n')
	at = time.Now()
	if err != nil {
		return 0, at, fmt.Errorf("the first answer: %w", err)
	}
	var answer struct {
		Seq *uint64 `json:"seq"`
		PTS int64   `json:"pts_us"`
	}
	if err := json.Unmarshal(line, &answer); err != nil || answer.Seq == nil {
		return 0, at, fmt.Errorf("the first answer is %q: %v", line, err)
	}
	return time.Duration(answer.PTS) * time.Microsecond, at, nil
}

// remove deletes a stream.
func remove(address string) error {
	req, err := http.NewRequest(http.MethodDelete, address, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
