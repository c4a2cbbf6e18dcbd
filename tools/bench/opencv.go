package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

//go:embed opencv.py
var openCVScript string

// errNoOpenCV is the reason why rows against the OpenCV script have no figures.
var errNoOpenCV = errors.New("needs python3-opencv: scripts/deps.sh bench")

// findOpenCV returns a python3 with OpenCV.
func findOpenCV() (string, error) {
	for _, program := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(program, "-c", "import cv2").Run() == nil {
			return program, nil
		}
	}
	return "", errNoOpenCV
}

// openCV returns the script's processor time in ms for a frame of a clip, in several processes at the same time. fps
// 0 = as fast as possible.
func openCV(python, clip string, copies int, fps float64, frames int) (float64, error) {
	each, errs := make([]float64, copies), make([]error, copies)
	var wg sync.WaitGroup
	for i := range copies {
		wg.Go(func() {
			cmd := exec.Command(python, "-c", openCVScript, clip, fmt.Sprint(fps), fmt.Sprint(frames))
			cmd.Env = append(os.Environ(), "OPENCV_FFMPEG_CAPTURE_OPTIONS=threads;1")
			var said strings.Builder
			cmd.Stderr = &said
			out, err := cmd.Output()
			if err == nil {
				each[i], err = strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
			}
			if err != nil {
				errs[i] = fmt.Errorf("the OpenCV script: %w: %s", err, strings.TrimSpace(said.String()))
			}
		})
	}
	wg.Wait()
	sum := 0.
	for _, ms := range each {
		sum += ms
	}
	return sum / float64(copies), errors.Join(errs...)
}
