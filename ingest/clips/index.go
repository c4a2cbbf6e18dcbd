package clips

import (
	"errors"
	"os"

	"millrace/internal/video"
	"millrace/stream/buf"
)

// newVideo is the end of the name of a video with an index that is being written.
const newVideo = ".mp4.new"

// index replaces the fragmented video of a clip, its first size bytes, by a video with an index. The description of
// the clip is that of a clip that is ready: whenever the server is killed, the folder has a whole video.
func (s *Store) index(root *os.Root, c *Clip, size int64, memory *buf.Pool) error {
	need := int64(c.Frames) * video.IndexMemory
	if err := memory.Charge(need); err != nil {
		return err
	}
	defer memory.Refund(need)
	s.grown(c, c.Bytes+size) // two videos
	s.mu.Lock()
	full := s.excess() || c.Client && s.clientExcess()
	s.mu.Unlock()
	if full {
		return errors.New("clips.max_bytes has no room for a copy of the video")
	}
	from, err := root.Open(c.path + ".mp4")
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := root.OpenFile(c.path+newVideo, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = video.Index(to, from, size)
	info, bad := to.Stat()
	err = errors.Join(err, bad, to.Sync(), to.Close())
	if err == nil {
		err = root.Rename(c.path+newVideo, c.path+".mp4") // an open file stays as it is
	}
	if err != nil {
		_ = root.Remove(c.path + newVideo)
		return err
	}
	c.Fragmented = false
	c.Bytes += info.Size() - size
	if err := s.describe(root, c); err != nil { // the next start corrects the description
		s.o.Log.Error("the description of a clip cannot be written", "clip", c.ID, "error", err)
	}
	return nil
}

// stays tells that a clip has no index.
func (s *Store) stays(c *Clip, err error) {
	s.o.Log.Warn("a clip stays a fragmented MP4, which players can play: the index in front cannot be written", "clip",
		c.ID, "stream", c.Stream, "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fragmented++
}

// recheck corrects the description of a clip whose server was killed behind the replacement of the video.
func (s *Store) recheck(root *os.Root, c *Clip) error {
	f, err := root.Open(c.path + ".mp4")
	if err != nil {
		return nil // a clip without its video, such as after a repair of the file system
	}
	defer f.Close()
	if c.Fragmented = video.Fragmented(f); c.Fragmented {
		return nil
	}
	c.measure(root)
	return s.describe(root, c)
}
