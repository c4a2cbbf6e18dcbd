package main

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"
)

// cameraGroup are cameras with pictures of the same size.
type cameraGroup struct {
	width, height, cameras int
	memory                 float64 // limit of a camera's memory in MB; 0 = none
}

// pulledCameras are as many as two processors can serve.
var pulledCameras = []cameraGroup{{1280, 720, 8, 45}, {1920, 1080, 4, 0}}

// pulled compares the processor time of a frame of H.264 read by the server with decoding and running the frame
// alone, and with a script for OpenCV.
func pulled(b *bench) error {
	python, err := findOpenCV()
	if err != nil && !errors.Is(err, errNoOpenCV) {
		return err
	}
	idle, err := b.idleMemory()
	if err != nil {
		return err
	}
	for _, c := range pulledCameras {
		f, err := b.footageOf("h264", c.width, c.height)
		if err != nil {
			return err
		}
		pictures, err := f.forMotion()
		if err != nil {
			return err
		}
		for _, paced := range []bool{true, false} {
			b.step("%s", f.name())
			p := pulledVideo{bench: b, footage: f, pictures: pictures, cameras: c.cameras, paced: paced, python: python}
			if err := p.measure(); err != nil {
				return fmt.Errorf("%s: %w", f.name(), err)
			}
			if paced {
				mb := (p.pss - idle) / 1e6 / float64(c.cameras)
				row := Row{Name: fmt.Sprintf("%s pulled, %d cameras: memory of one, its ffmpeg included", f.name(),
					c.cameras), Unit: "MB", Millrace: mb}
				if c.memory > 0 {
					row.Limit, row.Met = fmt.Sprintf("<= %.0f", c.memory), mb <= c.memory
				}
				b.add(row)
			}
		}
	}
	return nil
}

// idleMemory returns the memory of a server of motion without streams, in bytes.
func (b *bench) idleMemory() (float64, error) {
	s, err := startServer(motionModel)
	if err != nil {
		return 0, err
	}
	use, err := s.usage()
	return use.pss, errors.Join(err, s.end())
}

const motionModel = "models: [{name: motion, source: motion, instances: 2}]\n"

// pulledVideo measures a way of reading a clip.
type pulledVideo struct {
	*bench
	footage  footage
	pictures [][]byte
	cameras  int
	paced    bool    // else as fast as can be
	python   string  // "" = without OpenCV
	pss      float64 // of the server and its ffmpeg processes, in bytes
}

// span is the length of a round: processor time of other processes is known in steps of 10 ms.
func (b *bench) span() time.Duration { return 6 * b.round }

func (p *pulledVideo) measure() error {
	rate := 0.
	copies, frames := min(runtime.GOMAXPROCS(0), p.cameras), int(p.span().Seconds()*videoRate)+1
	if p.paced {
		rate, copies = videoRate, p.cameras
	}
	var decodes, models, scripts, servers, ffmpegs, totals, sheds, pss, ratios, toScript []float64
	rounds := p.rounds / 3
	if p.footage.height > 720 { // takes longer
		rounds = p.rounds / 9
	}
	for i := range max(rounds, 1) {
		var decode, model, script float64
		var ours cost
		turns := []func() error{
			func() (err error) { decode, err = p.footage.decode(copies, p.paced, frames); return err },
			func() (err error) {
				model, err = motionAlone(p.pictures, p.cameras, rate*float64(p.cameras), p.span()/2)
				return err
			},
			func() (err error) { ours, err = p.serve(); return err },
			func() (err error) {
				if p.python != "" {
					script, err = openCV(p.python, p.footage.path, copies, rate, frames)
				}
				return err
			},
		}
		for k := range turns {
			if err := turns[(i+k)%len(turns)](); err != nil {
				return err
			}
		}
		decodes, models, scripts = append(decodes, decode), append(models, model), append(scripts, script)
		servers, ffmpegs, totals = append(servers, ours.server), append(ffmpegs, ours.ffmpeg),
			append(totals, ours.total())
		sheds, pss = append(sheds, ours.shed), append(pss, ours.pss)
		ratios, toScript = append(ratios, ours.total()/(decode+model)), append(toScript, ours.total()/script)
	}
	p.pss = median(pss)
	name := fmt.Sprintf("%s pulled, %d cameras", p.footage.name(), p.cameras)
	if p.paced {
		name += fmt.Sprintf(" at %d fps", videoRate)
		if shed := median(sheds); shed > 0.01 {
			name += fmt.Sprintf(" (%.0f %% shed)", 100*shed)
		}
	} else {
		name += ", as fast as can be"
	}
	name += ", CPU a frame"
	row := Row{Unit: "ms", Bare: median(decodes) + median(models), Millrace: median(totals), Ratio: median(ratios)}
	row.Name = fmt.Sprintf("%s (server %s + ffmpeg %s), against decoding %s + motion %s", name,
		figure(median(servers)), figure(median(ffmpegs)), figure(median(decodes)), figure(median(models)))
	p.add(row.atMost(1.30))
	row = Row{Name: name + ", against OpenCV", Unit: "ms", Bare: median(scripts), Millrace: median(totals),
		Limit: "<= 0.60"}
	if p.python == "" {
		row.Name += " (" + errNoOpenCV.Error() + ")"
	} else {
		row.Ratio = median(toScript)
		row = row.atMost(0.60)
	}
	p.add(row)
	return nil
}

// serve measures a server that reads the clip.
func (p *pulledVideo) serve() (c cost, err error) {
	policy := "every"
	if p.paced {
		policy = "latest"
	}
	var lines strings.Builder
	lines.WriteString(motionModel + "streams:\n")
	for i := range p.cameras {
		fmt.Fprintf(&lines, "  - {name: camera%d, source: %q, model: motion, policy: %s, loop: true}\n", i,
			p.footage.path, policy)
	}
	s, err := startServer(lines.String())
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	if err := s.answered(videoRate / 2); err != nil {
		return c, err
	}
	time.Sleep(p.span() / 6)
	return s.costOf(p.span())
}
