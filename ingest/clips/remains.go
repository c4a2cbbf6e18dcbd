package clips

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"regexp"
	"strings"

	"millrace/internal/video"
)

// finish finishes a clip of a killed server. The video ends with its last whole picture. A clip without a picture is
// removed, and kept is false.
func (s *Store) finish(root *os.Root, c *Clip) (kept bool, err error) {
	c.State, c.Cut, c.Fragmented = Ready, CutInterrupted, true
	if err := finishVideo(root, c); err != nil {
		return false, err
	}
	if c.Frames == 0 {
		s.o.Log.Warn("a clip without a picture, of a server that was killed, was removed", "clip", c.ID, "stream",
			c.Stream)
		s.add(c)
		return false, s.remove(c)
	}
	c.measure(root)
	s.o.Log.Warn("a clip of a server that was killed was finished", "clip", c.ID, "stream", c.Stream, "seconds",
		c.Seconds)
	return true, s.describe(root, c)
}

// measure sets the number of the pictures, and the bytes of all files.
func (c *Clip) measure(root *os.Root) {
	c.Bytes, c.Pictures = 0, 0
	for i, name := range c.files() {
		if info, err := root.Stat(name); err == nil {
			c.Bytes += info.Size()
			c.Pictures = max(c.Pictures, i/2)
		}
	}
}

// finishVideo cuts a video after its last whole picture, and sets the number and the length of the pictures.
func finishVideo(root *os.Root, c *Clip) error {
	c.Frames, c.Seconds = 0, 0
	f, err := root.OpenFile(c.path+".mp4", os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	whole := int64(0)
	header := int64(0)
	from := &diskReader{File: f}
	_ = video.ReadMP4(bufio.NewReaderSize(from, 64<<10), func(p video.Fragment) {
		if header == 0 {
			header = int64(len(p.Header.Bytes))
			whole = header
		}
		whole += int64(len(p.Data))
		c.Frames++
		c.Seconds = (p.Header.Duration(p.Ticks) + p.Length).Seconds()
	})
	if from.err != nil { // the rest of the video may be whole
		return from.err
	}
	return f.Truncate(whole)
}

// diskReader remembers an error of the disk.
type diskReader struct {
	*os.File
	err error
}

func (r *diskReader) Read(p []byte) (int, error) {
	n, err := r.File.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// remains are files without a description, such as after a power failure.
type remains struct {
	files []string
	known map[string]bool // the path of each description, without extension
}

// ownFile matches the names of all files that a clip can have beside its description.
var ownFile = regexp.MustCompile(`^\d{4}-\d\d-\d\d/[^/]+/\d{6}-[A-Z2-7]{10}\.` +
	`(mp4|mp4\.new|boxes\.jsonl|json\.new|\d+\.jpg|\d+\.boxes\.jpg)$`)

func (r *remains) found(name string) {
	if ownFile.MatchString(name) {
		r.files = append(r.files, name)
	}
}

func (r *remains) describes(name string) {
	if r.known == nil {
		r.known = map[string]bool{}
	}
	r.known[strings.TrimSuffix(name, ".json")] = true
}

// remove removes the files. A description that cannot be read keeps its files.
func (r *remains) remove(root *os.Root, log *slog.Logger) error {
	for _, name := range r.files {
		dir, base := path.Split(name)
		clip, _, _ := strings.Cut(base, ".")
		if r.known[dir+clip] && !strings.HasSuffix(name, ".new") {
			continue
		}
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		_ = root.Remove(path.Dir(name)) // unless there are other files
		_ = root.Remove(path.Dir(path.Dir(name)))
		said := "a file of a clip without a description was removed"
		if strings.HasSuffix(name, newVideo) {
			said = "an unfinished copy of the video of a clip was removed: the clip stays a fragmented MP4"
		}
		log.Warn(said, "file", name)
	}
	return nil
}
