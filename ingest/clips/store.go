package clips

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/stream"
)

// Options are the settings of a Store.
type Options struct {
	Folder   string
	MaxAge   time.Duration // clips are removed after this time; 0 = never
	MaxBytes int64         // of all clips; beyond, the oldest are removed
	Memory   int64         // bytes of packets before events, of each stream
	Log      *slog.Logger

	ClientBytes int64            // of all clips of client streams; 0 = a quarter of MaxBytes
	Now         func() time.Time // nil = time.Now
}

// State is the state of a clip.
type State string

// The states.
const (
	Recording State = "recording"
	Ready     State = "ready"
)

// Clip describes a clip.
type Clip struct {
	ID         string    `json:"id"`
	Stream     string    `json:"stream"`
	Models     []string  `json:"models"` // of the stream; a client sees the clip if the client may use all models
	State      State     `json:"state"`
	Begin      time.Time `json:"begin"`               // of the first picture
	StartUS    int64     `json:"start_us"`            // of the first picture, on the clock of the events
	OffsetUS   int64     `json:"offset_us,omitempty"` // of the first picture, in the video
	Seconds    float64   `json:"seconds"`
	Frames     int       `json:"frames"`
	Codec      string    `json:"codec"` // by MP4's name, such as avc1
	Bytes      int64     `json:"bytes"` // of all files
	Pictures   int       `json:"pictures"`
	Events     []Event   `json:"events"`
	MoreEvents int       `json:"more_events,omitempty"` // that are not listed
	Cut        Cut       `json:"cut,omitempty"`         // why the clip ended early
	Short      bool      `json:"short,omitempty"`       // packets of the asked time before the event were missing
	Favourite  bool      `json:"favourite,omitempty"`   // kept whatever its age
	Client     bool      `json:"client,omitempty"`      // the stream is a client's
	Fragmented bool      `json:"fragmented,omitempty"`  // the MP4 has no index in front of the pictures

	path   string  // of its files, without extension
	listed []Event // in Store.events
}

// Event is an event of a clip.
type Event struct {
	Event   json.RawMessage `json:"event"`
	AtUS    int64           `json:"at_us"`             // in the clip
	Picture int             `json:"picture,omitempty"` // number of its picture; 0 = none
	ID      string          `json:"-"`                 // of the event
}

// Store has the clips of a folder. A Store is safe for concurrent use.
type Store struct {
	o      Options
	most   int // clips
	missed atomic.Uint64
	folder folderLock

	writing sync.Mutex // held while descriptions of ended clips are written, and clips are removed; before mu
	mu      sync.Mutex // held for a short time only, never while a file is written
	ids     []string   // sorted, and so by time
	clips   map[string]*Clip
	events  map[string][]string // ids of the clips with an event, sorted; by the event's id
	bytes   int64
	cuts    map[Cut]uint64
	users   atomic.Int32 // Close closes with the last
	client  struct {     // part of ids and of bytes
		clips int
		bytes int64
	}
	count      uint64 // clips written
	fragmented uint64 // clips that stay fragmented
}

// maxClips bounds the clips, because their descriptions are in memory. Beyond, the oldest are removed.
const maxClips = 100_000

// Open opens a folder for one Store, and reads the descriptions of its clips. A missing folder is made. Clips that a
// killed server left are finished, and remains of clips without a description are removed.
func Open(o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.ClientBytes = cmp.Or(o.ClientBytes, o.MaxBytes/4)
	s := &Store{o: o, most: maxClips, clips: map[string]*Clip{}, events: map[string][]string{},
		cuts: map[Cut]uint64{}}
	s.folder.log = o.Log
	s.users.Store(1)
	err := s.read()
	if err != nil {
		s.Close()
		return nil, stream.Errorf(stream.InvalidArgument, "clips.folder", "%w", err)
	}
	s.Tidy()
	return s, nil
}

// Retain adds a user of the store, and returns the store. Each user calls Close.
func (s *Store) Retain() *Store {
	s.users.Add(1)
	return s
}

// Close lets another Store open the folder, after the call of the last user. No clip of the user is being written any
// more.
func (s *Store) Close() {
	if s != nil && s.users.Add(-1) == 0 {
		s.folder.close()
	}
}

// read reads the descriptions of the folder's clips.
func (s *Store) read() error {
	root, err := s.root()
	if err != nil {
		return err
	}
	defer root.Close()
	var rest remains
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && name != "." && !strings.Contains(name, "/") {
			if _, no := time.Parse(time.DateOnly, name); no != nil { // such as lost+found
				s.o.Log.Warn("a folder in the folder of clips has no clips", "folder", name)
				return fs.SkipDir
			}
		}
		if err != nil || d.IsDir() {
			return err
		}
		if path.Ext(name) != ".json" {
			rest.found(name)
			return nil
		}
		c, err := readClip(root, d, name)
		if err != nil {
			return err
		}
		rest.describes(name)
		if c == nil {
			s.o.Log.Warn("a file in the folder of clips describes no clip", "file", name)
			return nil
		}
		if c.State != Ready {
			if kept, err := s.finish(root, c); err != nil || !kept {
				return err
			}
		} else if c.Fragmented {
			if err := s.recheck(root, c); err != nil {
				return err
			}
		}
		s.add(c)
		return nil
	})
	if err == nil {
		err = rest.remove(root, s.o.Log)
	}
	return err
}

// maxDescription bounds the description of a clip.
const maxDescription = 64 << 20

// readClip reads the description of a clip; nil when the file is none.
func readClip(root *os.Root, d fs.DirEntry, name string) (*Clip, error) {
	info, err := d.Info()
	if err != nil || info.Size() > maxDescription || !info.Mode().IsRegular() {
		return nil, err
	}
	text, err := root.ReadFile(name)
	if err != nil {
		return nil, err
	}
	c := &Clip{path: strings.TrimSuffix(name, ".json")}
	if json.Unmarshal(text, c) != nil || c.path != place(c.ID, c.Stream) || c.State != Ready && c.State != Recording {
		return nil, nil
	}
	for i := range c.Events {
		var e struct{ ID string }
		if json.Unmarshal(c.Events[i].Event, &e) == nil {
			c.Events[i].ID = e.ID
		}
	}
	return c, nil
}

// place returns the path of the files of a clip, without extension; "" when the id is none of a clip.
func place(id, stream string) string {
	day, rest, _ := strings.Cut(id, "-")
	t, err := time.Parse("20060102", day)
	if err != nil || rest == "" {
		return ""
	}
	return t.Format(time.DateOnly) + "/" + escape(stream) + "/" + rest
}

// files returns the names of all files that a clip can have beside its description: two of the video, and two of each
// picture.
func (c *Clip) files() []string {
	names := []string{c.path + ".mp4", c.path + ".boxes.jsonl"}
	for i := range maxPictures {
		names = append(names, fmt.Sprintf("%s.%d.jpg", c.path, i+1), fmt.Sprintf("%s.%d.boxes.jpg", c.path, i+1))
	}
	return names
}

// root opens the folder, which may have been removed since.
func (s *Store) root() (*os.Root, error) {
	if err := os.MkdirAll(s.o.Folder, 0o700); err != nil {
		return nil, err
	}
	if err := s.folder.hold(s.o.Folder); err != nil {
		return nil, err
	}
	return os.OpenRoot(s.o.Folder)
}

// add adds a clip. mu is held, or the store is not shared yet.
func (s *Store) add(c *Clip) {
	i := sort.SearchStrings(s.ids, c.ID)
	s.ids = slices.Insert(s.ids, i, c.ID)
	s.clips[c.ID] = c
	s.tally(c, 1, c.Bytes)
	s.list(c, c.Events)
}

// list lists the events of a clip, of which the first may be listed. mu is held, or the store is not shared yet.
func (s *Store) list(c *Clip, all []Event) {
	for _, e := range all[len(c.listed):] {
		ids := s.events[e.ID]
		if i, found := slices.BinarySearch(ids, c.ID); !found {
			s.events[e.ID] = slices.Insert(ids, i, c.ID)
		}
	}
	c.listed = all
}

// unlist removes the events of a clip from the list. mu is held.
func (s *Store) unlist(c *Clip) {
	for _, e := range c.listed {
		ids := s.events[e.ID]
		if i, found := slices.BinarySearch(ids, c.ID); !found {
			continue
		} else if len(ids) == 1 {
			delete(s.events, e.ID)
		} else {
			s.events[e.ID] = slices.Delete(ids, i, i+1)
		}
	}
}

// tally counts a clip, and bytes of the clip. mu is held, or the store is not shared yet.
func (s *Store) tally(c *Clip, clips int, bytes int64) {
	s.bytes += bytes
	if c.Client {
		s.client.clips += clips
		s.client.bytes += bytes
	}
}

// escape returns a name as the name of a folder.
func escape(name string) string {
	e := url.PathEscape(name)
	if strings.HasPrefix(e, ".") {
		e = "%2E" + e[1:]
	}
	if len(e) > 120 {
		e = e[:120]
	}
	if e == "" {
		e = "%"
	}
	return e
}

// create makes the files of a clip.
func (s *Store) create(c *recording) (f *output, err error) {
	begun := c.begun.UTC()
	clip := &Clip{ID: begun.Format("20060102-150405") + "-" + rand.Text()[:10], Stream: c.env.Stream, Models: c.models,
		State: Recording, Begin: begun, StartUS: c.first.pts.Microseconds(), Codec: c.header.Codec,
		OffsetUS: (c.first.pts - c.first.dts).Microseconds(),
		Client:   c.env.all != nil, Fragmented: true}
	clip.path = place(clip.ID, clip.Stream)
	root, err := s.root()
	if err != nil {
		return nil, err
	}
	f = &output{s: s, clip: clip, root: root}
	if err = root.MkdirAll(path.Dir(clip.path), 0o700); err == nil {
		// The description comes first: a killed server leaves no video without a description.
		if err = s.describe(root, clip); err == nil {
			f.video, err = root.OpenFile(clip.path+".mp4", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		}
	}
	if err != nil {
		_ = root.Remove(clip.path + ".json")
		_ = root.Close()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	shown := *clip
	s.add(&shown)
	return f, nil
}

// describe writes the description of a clip, whole or not at all.
func (s *Store) describe(root *os.Root, c *Clip) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(c); err != nil {
		return err
	}
	name := c.path + ".json.new"
	f, err := root.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text.Bytes())
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = root.Remove(name)
		return err
	}
	return root.Rename(name, c.path+".json")
}

// grown shows the size, the length and the events of a clip that is being written.
func (s *Store) grown(c *Clip, size int64) {
	s.mu.Lock()
	if shown := s.clips[c.ID]; shown != nil {
		s.tally(shown, 0, size-shown.Bytes)
		shown.Bytes, shown.Seconds, shown.Frames, shown.Pictures = size, c.Seconds, c.Frames, c.Pictures
		s.list(shown, c.Events)
	}
	full := s.excess() || s.clientExcess()
	s.mu.Unlock()
	if full {
		s.Tidy()
	}
}

// favourite reports whether a clip that is being written is a favourite.
func (s *Store) favourite(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clips[id] != nil && s.clips[id].Favourite
}

// ended shows a clip that has ended, and returns its description.
func (s *Store) ended(root *os.Root, c *Clip) *Clip {
	s.writing.Lock()
	if f := s.favourite(c.ID); f != c.Favourite { // changed since the description was written
		c.Favourite = f
		if err := s.describe(root, c); err != nil {
			s.o.Log.Error("the description of a clip cannot be written", "clip", c.ID, "error", err)
		}
	}
	s.mu.Lock()
	s.count++
	if c.Cut != "" {
		s.cuts[c.Cut]++
	}
	if shown := s.clips[c.ID]; shown != nil {
		s.tally(c, 0, c.Bytes-shown.Bytes)
		s.clips[c.ID] = c
		c.listed = shown.listed
		s.list(c, c.Events)
	}
	own := *c
	s.mu.Unlock()
	s.writing.Unlock()
	s.Tidy()
	return &own
}

// drop removes a clip without a picture, as on a full file system.
func (s *Store) drop(c *Clip) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	if c.Cut != "" {
		s.cuts[c.Cut]++
	}
	s.mu.Unlock()
	if err := s.remove(c); err != nil {
		s.o.Log.Error("a clip without a picture cannot be removed", "clip", c.ID, "error", err)
	}
}

// excess reports whether the clips are too many or too large. mu is held.
func (s *Store) excess() bool { return s.bytes > s.o.MaxBytes || len(s.ids) > s.most }

// clientExcess reports whether the clips of client streams are too many or too large. mu is held.
func (s *Store) clientExcess() bool {
	return s.client.bytes > s.o.ClientBytes || s.client.clips > s.most/4
}

// Tidy removes the clips that are too old or too many. Favourites and clips that are being written stay.
func (s *Store) Tidy() {
	s.writing.Lock()
	defer s.writing.Unlock()
	for c := s.oldest(); c != nil; c = s.oldest() {
		if err := s.remove(c); err != nil {
			s.o.Log.Error("an old clip cannot be removed", "clip", c.ID, "error", err)
			return
		}
		s.o.Log.Info("an old clip was removed", "clip", c.ID, "stream", c.Stream)
	}
}

// oldest returns the next clip that Tidy removes, or nil.
func (s *Store) oldest() *Clip {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := s.o.Now().Add(-s.o.MaxAge)
	excess, clients := s.excess(), s.clientExcess()
	for _, id := range s.ids {
		c := s.clips[id]
		old := s.o.MaxAge > 0 && c.Begin.Before(limit)
		if !old && !excess && !clients {
			return nil
		}
		if !c.Favourite && c.State == Ready && (old || excess || c.Client) {
			return c
		}
	}
	return nil
}

// remove removes a clip and its files. writing is held.
func (s *Store) remove(c *Clip) error {
	root, err := s.root()
	if err != nil {
		return err
	}
	defer root.Close()
	// The description goes last: without a description the further files would stay until the next start.
	for _, n := range append(c.files(), c.path+".mp4.new", c.path+".json.new", c.path+".json") {
		if err := root.Remove(n); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	_ = root.Remove(path.Dir(c.path)) // unless there are other clips
	_ = root.Remove(path.Dir(path.Dir(c.path)))
	s.mu.Lock()
	defer s.mu.Unlock()
	if shown := s.clips[c.ID]; shown != nil {
		s.tally(shown, -1, -shown.Bytes)
		s.unlist(shown)
	}
	delete(s.clips, c.ID)
	if i, found := slices.BinarySearch(s.ids, c.ID); found {
		s.ids = slices.Delete(s.ids, i, i+1)
	}
	return nil
}

// Missing is the error for a clip that does not exist, or that the client may not see.
func Missing(id string) error {
	return stream.Errorf(stream.NotFound, "", "no clip has the id %.80q: GET /v2/clips lists the clips", id)
}

// Get returns a clip.
func (s *Store) Get(id string) (*Clip, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clips[id]
	if c == nil {
		return nil, Missing(id)
	}
	own := *c
	return &own, nil
}

// Query selects clips.
type Query struct {
	Stream   string    // "" = all
	Event    string    // with this event, by its id; "" = all
	From, To time.Time // of Clip.Begin; zero = no bound
	Before   string    // id of a clip: earlier clips only
	Limit    int
	Keep     func(*Clip) bool // further conditions
}

// List returns clips, the newest first. more: the next page has clips, too.
func (s *Store) List(q Query) (list []*Clip, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := s.ids
	if q.Event != "" {
		ids = s.events[q.Event]
	}
	for _, id := range slices.Backward(ids) {
		c := s.clips[id]
		switch {
		case q.Before != "" && id >= q.Before, q.Stream != "" && c.Stream != q.Stream,
			!q.To.IsZero() && !c.Begin.Before(q.To), !q.From.IsZero() && c.Begin.Before(q.From), !q.Keep(c):
			continue
		case len(list) == q.Limit:
			return list, true
		}
		own := *c
		list = append(list, &own)
	}
	return list, false
}

// Delete removes a clip that has ended.
func (s *Store) Delete(id string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	c, err := s.Get(id)
	switch {
	case err != nil:
		return err
	case c.State != Ready:
		return stream.Errorf(stream.Conflict, "", "the clip %s is being written: delete it when it has ended", id)
	}
	if err := s.remove(c); err != nil {
		return stream.Errorf(stream.Unavailable, "clips.folder", "%w", err)
	}
	return nil
}

// SetFavourite keeps a clip whatever its age, or no longer.
func (s *Store) SetFavourite(id string, favourite bool) (*Clip, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	own, err := s.Get(id)
	if err != nil {
		return nil, err
	}
	own.Favourite = favourite
	if own.State == Ready {
		root, err := s.root()
		if err == nil {
			err = s.describe(root, own)
			_ = root.Close()
		}
		if err != nil {
			return nil, stream.Errorf(stream.Unavailable, "clips.folder", "%w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clips[id].Favourite = favourite // what grows in the clip may have changed since
	return own, nil
}

// File opens a file of a clip: the video, the lines about its objects, or a picture.
func (s *Store) File(c *Clip, suffix string) (*os.File, error) {
	root, err := s.root()
	if err != nil {
		return nil, stream.Errorf(stream.Unavailable, "clips.folder", "%w", err)
	}
	defer root.Close()
	f, err := root.Open(c.path + suffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, stream.Errorf(stream.NotFound, "", "the clip %s has no file %s", c.ID, suffix)
	}
	if err != nil {
		return nil, stream.Errorf(stream.Unavailable, "clips.folder", "%w", err)
	}
	return f, nil
}

// Retention says which clips are removed. Favourites stay.
type Retention struct {
	MaxAgeSeconds float64 `json:"max_age_seconds,omitempty"` // 0 = clips of any age stay
	MaxBytes      int64   `json:"max_bytes"`                 // of all clips; beyond, the oldest are removed
}

// Retention returns the limits of the store.
func (s *Store) Retention() *Retention {
	return &Retention{s.o.MaxAge.Seconds(), s.o.MaxBytes}
}

// Stats are the counters of a store.
type Stats struct {
	Clips   int
	Bytes   int64
	Written uint64
	Missed  uint64 // events without a clip
	Cuts    map[Cut]uint64

	Fragmented uint64 // clips that stay fragmented
}

// Stats reads the counters.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Clips: len(s.ids), Bytes: s.bytes, Written: s.count, Missed: s.missed.Load(), Cuts: map[Cut]uint64{},
		Fragmented: s.fragmented}
	for k, n := range s.cuts {
		st.Cuts[k] = n
	}
	return st
}
