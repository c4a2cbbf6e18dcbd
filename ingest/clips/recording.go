package clips

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"millrace/internal/video"
)

// Cut is why a clip ended early; "" = it did not.
type Cut string

// The reasons.
const (
	CutReconnected Cut = "reconnected" // the source failed or was opened anew
	CutCodec       Cut = "codec"       // the source was opened anew, with another codec
	CutFormat      Cut = "format"      // a client changed the size or the parameters of its video
	CutSilent      Cut = "silent"      // a client sent no video for some time
	CutClock       Cut = "clock"       // the times of the source jumped
	CutChanged     Cut = "changed"     // the settings of the stream were changed
	CutStopped     Cut = "stopped"     // the stream or the server ended
	CutLong        Cut = "long"        // too long or too large, without a key frame to go on in another clip
	CutMemory      Cut = "memory"      // memory.budget, clips.memory or clips.clients.memory was used up
	CutSlow        Cut = "slow_disk"   // the folder is slower than the video
	CutFull        Cut = "full_disk"   // the folder's file system is full
	CutFile        Cut = "file"        // the folder vanished or cannot be written
	CutInterrupted Cut = "interrupted" // the server was killed
)

// Cuts lists every reason, for metrics.
var Cuts = []Cut{CutReconnected, CutCodec, CutFormat, CutSilent, CutClock, CutChanged, CutStopped, CutLong, CutMemory,
	CutSlow, CutFull, CutFile, CutInterrupted}

// maxPictures bounds the pictures of a clip, and maxEvents its events.
const maxPictures, maxEvents = 16, 4096

// recording is a clip that grows. add, event and end are called with the Recorder's lock held; write runs in a
// goroutine.
type recording struct {
	env    Env
	header *video.MP4Header
	first  entry // without data
	begun  time.Time
	models []string
	short  bool  // see Clip.Short
	bytes  int64 // added so far

	mu      sync.Mutex
	news    sync.Cond
	queue   []entry
	waiting int64 // bytes in queue
	events  []Event
	more    int // events beyond maxEvents
	drawing []*Picture
	drawn   int // pictures so far
	ended   bool
	failed  bool // the file cannot be written: entries are dropped
	cut     Cut
}

func newRecording(env Env, h *video.MP4Header, first entry, models []string, begun time.Time) *recording {
	first.lease, first.data = nil, nil
	c := &recording{env: env, header: h, first: first, models: models, begun: begun}
	c.news.L = &c.mu
	return c
}

// add queues an entry, and returns false when too many bytes wait.
func (c *recording) add(e entry) bool {
	c.bytes += int64(len(e.data))
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.failed:
		return true
	case c.waiting+int64(len(e.data)) > 2*c.env.Store.o.Memory, !c.env.all.take(int64(len(e.data))):
		return false
	}
	e.lease.Retain()
	c.queue = append(c.queue, e)
	c.waiting += int64(len(e.data))
	c.news.Signal()
	return true
}

// event adds an event with its picture, and returns the picture unless the clip takes it.
func (c *recording) event(i Incident, p *Picture) *Picture {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.events) == maxEvents {
		c.more++
		return p
	}
	e := Event{Event: i.Text, AtUS: max(i.At-c.first.pts, 0).Microseconds(), ID: i.ID}
	switch {
	case p != nil && c.drawn < maxPictures:
		c.drawing = append(c.drawing, p)
		c.drawn++
		e.Picture, p = c.drawn, nil
		c.news.Signal()
	case p == nil && len(c.events) > 0 && c.events[len(c.events)-1].AtUS == e.AtUS: // another event of the frame
		e.Picture = c.events[len(c.events)-1].Picture
	}
	c.events = append(c.events, e)
	return p
}

// end ends the clip after the queued entries.
func (c *recording) end(cut Cut) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.cut == "" {
		c.cut = cut
	}
	c.news.Signal()
}

// take waits for entries and pictures. more is false after the last ones.
func (c *recording) take() (list []entry, pictures []*Picture, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) == 0 && len(c.drawing) == 0 && !c.ended {
		c.news.Wait()
	}
	list, pictures, more = c.queue, c.drawing, !c.ended
	c.env.all.give(c.waiting)
	c.queue, c.drawing, c.waiting = nil, nil, 0
	return list, pictures, more
}

// discard drops what was queued. No goroutine writes the clip.
func (c *recording) discard() {
	c.mu.Lock()
	c.failed = true
	c.mu.Unlock()
	c.end(CutStopped)
	list, pictures, _ := c.take()
	release(list, pictures)
}

func release(list []entry, pictures []*Picture) {
	for _, e := range list {
		e.lease.Release()
	}
	for _, p := range pictures {
		p.Release()
	}
}

// write writes the clip until its end.
func (c *recording) write() {
	f, err := c.env.Store.create(c)
	if err != nil {
		c.fail(err)
	}
	for more := true; more; {
		var list []entry
		var pictures []*Picture
		list, pictures, more = c.take()
		if f != nil && err == nil {
			if err = f.write(c, list); err != nil {
				c.fail(err)
			}
		}
		for _, p := range pictures {
			if f != nil && err == nil {
				f.draw(c, p)
			}
		}
		if f != nil && err == nil && more {
			if err = f.describe(); err != nil {
				c.fail(err)
			}
		}
		release(list, pictures)
	}
	if f == nil {
		c.env.Store.missed.Add(1)
		return
	}
	clip := f.finish(c)
	if clip == nil {
		c.env.Store.missed.Add(1)
		return
	}
	log := c.env.Log.Info
	if clip.Cut != "" && clip.Cut != CutStopped && clip.Cut != CutChanged {
		log = c.env.Log.Warn
	}
	attrs := []any{"stream", c.env.Stream, "clip", clip.ID, "seconds", clip.Seconds, "bytes", clip.Bytes}
	if clip.Cut != "" {
		attrs = append(attrs, "cut", clip.Cut)
	}
	log("a clip is ready", attrs...)
	c.env.Ready(clip)
}

// fail ends the writing after an error of the file system.
func (c *recording) fail(err error) {
	c.env.Log.Error("a clip cannot be written", "stream", c.env.Stream, "error", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = true
	if c.cut = CutFile; errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		c.cut = CutFull
	}
}

// output is the open file of a clip.
type output struct {
	s     *Store
	clip  *Clip
	root  *os.Root
	video *os.File
	text  *os.File // nil = no line yet
	head  []byte   // reused
	start int64    // ticks of the first packet
	size  int64    // bytes of whole fragments

	described float64 // length of the clip in its description
	events    int     // in its description
}

// describeEach is the length in seconds after which the description of a clip that grows is written again, for the
// case that the server is killed.
const describeEach = 10

// describe writes the description of a clip that grows: each describeEach, and when the number of events has doubled.
func (f *output) describe() error {
	n := len(f.clip.Events)
	if (n == f.events || n < 2*f.events) && f.clip.Seconds < f.described+describeEach {
		return nil
	}
	f.events, f.described, f.clip.Favourite = n, f.clip.Seconds, f.s.favourite(f.clip.ID)
	return f.s.describe(f.root, f.clip)
}

// write writes entries. After an error the file ends with the last whole fragment.
func (f *output) write(c *recording, list []entry) error {
	// Few writes: the packets before an event come together.
	buf := f.head[:0]
	var ends []pictureEnd // in buf
	flush := func() error {
		n, err := f.video.Write(buf)
		whole := 0
		for _, e := range ends {
			if e.at <= n {
				whole, f.clip.Frames, f.clip.Seconds = e.at, f.clip.Frames+1, e.seconds
			}
		}
		f.size += int64(whole)
		if err != nil {
			_ = f.video.Truncate(f.size)
		}
		buf, ends = buf[:0], ends[:0]
		return err
	}
	if f.size == 0 && len(list) > 0 {
		buf = append(buf, c.header.Bytes...)
		f.start = c.first.ticks
	}
	for i := range list {
		e := &list[i]
		if e.text {
			if err := f.line(c, e); err != nil {
				return err
			}
			continue
		}
		n := len(buf)
		buf = append(buf, e.data...)
		video.PutTime(buf[n:], e.at, e.ticks-f.start)
		ends = append(ends, pictureEnd{len(buf), (e.dts - c.first.dts + e.length).Seconds()})
		if len(buf) >= 1<<20 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	var err error
	if len(buf) > 0 {
		err = flush()
	}
	if f.head = buf; cap(f.head) > 4<<20 {
		f.head = nil
	}
	c.mu.Lock()
	f.clip.Events = slices.Clip(c.events)
	c.mu.Unlock()
	f.s.grown(f.clip, f.size)
	return err
}

// pictureEnd is the place behind a fragment, and the length of the clip there.
type pictureEnd struct {
	at      int
	seconds float64
}

// line writes a line about the objects of a frame, with the time in the clip.
func (f *output) line(c *recording, e *entry) (err error) {
	if f.text == nil {
		name := f.clip.path + ".boxes.jsonl"
		if f.text, err = f.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(f.text, "{\"at_us\":%d,%s\n", (e.pts - c.first.pts).Microseconds(), e.data)
	return err
}

// draw writes a picture of an event. A picture that fails is left out.
func (f *output) draw(c *recording, p *Picture) {
	f.clip.Pictures++
	plain, drawn, err := p.Draw()
	name := fmt.Sprintf("%s.%d", f.clip.path, f.clip.Pictures)
	if err == nil {
		err = errors.Join(f.root.WriteFile(name+".jpg", plain, 0o600),
			f.root.WriteFile(name+".boxes.jpg", drawn, 0o600))
	}
	if err != nil {
		c.env.Log.Warn("a picture of a clip cannot be written", "stream", c.env.Stream, "clip", f.clip.ID, "error", err)
		return
	}
	f.clip.Bytes += int64(len(plain) + len(drawn))
}

// finish closes the files and writes the description. A clip without a picture is removed, and finish returns nil.
func (f *output) finish(c *recording) *Clip {
	defer f.root.Close()
	c.mu.Lock()
	f.clip.Events, f.clip.MoreEvents, f.clip.Cut, f.clip.Short = c.events, c.more, c.cut, c.short
	c.mu.Unlock()
	if f.text != nil {
		if i, err := f.text.Stat(); err == nil {
			f.clip.Bytes += i.Size()
		}
		_ = f.text.Close()
	}
	if err := f.video.Close(); err != nil && f.clip.Cut == "" {
		f.clip.Cut = CutFile
	}
	f.clip.Bytes += f.size
	f.clip.State = Ready
	if f.clip.Frames == 0 {
		f.s.drop(f.clip)
		return nil
	}
	f.clip.Favourite = f.s.favourite(f.clip.ID)
	err := f.s.describe(f.root, f.clip)
	if err != nil {
		c.fail(err) // as when the folder was removed while the clip was written
		f.clip.Cut = c.cut
	} else {
		err = f.s.index(f.root, f.clip, f.size, c.env.Memory)
	}
	if err != nil {
		f.s.stays(f.clip, err)
	}
	return f.s.ended(f.root, f.clip)
}
