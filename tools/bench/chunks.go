package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"millrace/client"
	"millrace/stream"
)

// chunkSizes are the widths and heights of the clients' video.
var chunkSizes = [][2]int{{640, 480}, {1280, 720}}

// chunks compares the processor time of a frame of the clients' inter-coded video with decoding and running the frame
// alone.
func chunks(b *bench) error {
	s, err := startServer(motionModel)
	if err != nil {
		return err
	}
	defer s.end()
	for _, size := range chunkSizes {
		for _, codec := range []string{"h264", "vp8", "vp9", "av1"} {
			f, err := b.footageOf(codec, size[0], size[1])
			if err == nil {
				err = b.chunksOf(s, f)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", f.name(), err)
			}
		}
	}
	return nil
}

// chunksOf measures a codec. Codecs without a limit take fewer rounds.
func (b *bench) chunksOf(s *serverProcess, f footage) error {
	b.step("%s", f.name())
	dir, err := f.chunksDir()
	if err != nil {
		return err
	}
	pictures, err := f.forMotion()
	if err != nil {
		return err
	}
	c, err := startChild()
	if err != nil {
		return err
	}
	defer c.end()
	if _, err := c.do(job{Play: &play{Addr: s.addr, Model: "motion", Codec: f.codec, Dir: dir,
		Streams: videoStreams}}); err != nil {
		return err
	}
	if _, err := c.do(job{Pump: b.round}); err != nil { // until everything is allocated
		return err
	}
	var decodes, models, servers, ffmpegs, totals, sheds, ratios []float64
	frames := int(b.span().Seconds()*videoRate) + 1
	rounds := b.rounds / 3
	if f.codec != "h264" {
		rounds = b.rounds / 9
	}
	for i := range max(rounds, 1) {
		var decode, model float64
		var ours cost
		turns := []func() error{
			func() (err error) { decode, err = f.decode(videoStreams, true, frames); return err },
			func() (err error) {
				model, err = motionAlone(pictures, videoStreams, videoStreams*videoRate, b.span()/2)
				return err
			},
			func() error {
				before, err := s.usage()
				if err != nil {
					return err
				}
				a, err := c.do(job{Pump: b.span()})
				if err != nil {
					return err
				}
				after, err := s.usage()
				ours = costBetween(before, after, int(a.Frames), float64(a.Dropped))
				return err
			},
		}
		for k := range turns {
			if err := turns[(i+k)%len(turns)](); err != nil {
				return err
			}
		}
		decodes, models = append(decodes, decode), append(models, model)
		servers, ffmpegs, totals = append(servers, ours.server), append(ffmpegs, ours.ffmpeg),
			append(totals, ours.total())
		sheds, ratios = append(sheds, ours.shed), append(ratios, ours.total()/(decode+model))
	}
	name := fmt.Sprintf("%s chunks, %d streams at %d fps", f.name(), videoStreams, videoRate)
	if shed := median(sheds); shed > 0.01 {
		name += fmt.Sprintf(" (%.0f %% shed)", 100*shed)
	}
	row := Row{Unit: "ms", Bare: median(decodes) + median(models), Millrace: median(totals), Ratio: median(ratios)}
	row.Name = fmt.Sprintf("%s, CPU a frame (server %s + ffmpeg %s), against decoding %s + motion %s", name,
		figure(median(servers)), figure(median(ffmpegs)), figure(median(decodes)), figure(median(models)))
	if f.codec == "h264" {
		row = row.atMost(1.40)
	}
	b.add(row)
	return nil
}

// play are a client process's streams of chunks.
type play struct {
	Addr, Model, Codec string
	Dir                string // of the chunks, sent repeatedly; the first is a key frame
	Streams            int
}

// player sends the chunks of a play at videoRate.
type player struct {
	session           *client.Session
	streams           []*client.Stream
	chunks            [][]byte
	next              int // chunk
	answered, dropped atomic.Int64
	failure           atomic.Pointer[string]
}

// chunksDir writes the chunks of a clip to a folder.
func (f footage) chunksDir() (dir string, err error) {
	list, err := f.chunks()
	if err != nil {
		return "", err
	}
	dir = f.path + ".dir"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	for i, c := range list {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d", i)), c, 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// readChunks reads the files of a folder.
func readChunks(dir string) (chunks [][]byte, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		chunks = append(chunks, data)
	}
	return chunks, err
}

func (p *play) open() (*player, error) {
	chunks, err := readChunks(p.Dir)
	if err != nil {
		return nil, err
	}
	c, err := client.New(p.Addr)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	r := &player{chunks: chunks}
	if r.session, err = c.Session(ctx, client.SessionOptions{}); err != nil {
		return nil, err
	}
	o := client.StreamOptions{Codec: p.Codec, Policy: stream.Policy{Mode: stream.Latest}, OnReply: r.reply}
	for range p.Streams {
		st, err := r.session.Open(ctx, p.Model, o)
		if err != nil {
			return nil, errors.Join(err, r.session.Close())
		}
		r.streams = append(r.streams, st)
	}
	return r, nil
}

func (r *player) reply(a client.Reply) {
	switch {
	case a.Answered():
		r.answered.Add(1)
	case a.Err != nil:
		text := a.Err.Error()
		r.failure.Store(&text)
	default:
		r.dropped.Add(1)
	}
}

// run sends for a time and returns how many frames were answered, and dropped.
func (r *player) run(d time.Duration) (answered, dropped int64, err error) {
	r.answered.Store(0)
	r.dropped.Store(0)
	ctx, cancel := context.WithTimeout(context.Background(), d+30*time.Second)
	defer cancel()
	frames := int(d.Seconds()*videoRate) + 1
	errs := make([]error, len(r.streams))
	began := time.Now()
	var wg sync.WaitGroup
	for i, st := range r.streams {
		wg.Go(func() {
			for n := range frames {
				at := (float64(n) + float64(i)/float64(len(r.streams))) / videoRate
				time.Sleep(time.Until(began.Add(time.Duration(at * float64(time.Second)))))
				k := (r.next + n) % len(r.chunks)
				if _, err := st.Send(ctx, client.Frame{Data: r.chunks[k], Key: k == 0}); err != nil {
					errs[i] = err
					return
				}
			}
			errs[i] = st.Drain(ctx)
		})
	}
	wg.Wait()
	r.next += frames
	err = errors.Join(errs...)
	if text := r.failure.Load(); text != nil {
		err = errors.Join(err, fmt.Errorf("a frame failed: %s", *text))
	}
	return r.answered.Load(), r.dropped.Load(), err
}

func (r *player) close() { _ = r.session.Close() }
