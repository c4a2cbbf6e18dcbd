package stream

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"math"
	"slices"
	"sync"
)

// Cache keeps results of one-shot requests, so that an equal request to the same model needs no run. A Cache belongs
// to one load of a Model: another version, or another load of the same version, has its own Cache. New results
// displace the least recently used results. A Cache is safe for concurrent use.
type Cache struct {
	max int64

	mu    sync.Mutex
	used  int64
	found map[cacheKey]*list.Element // of cacheEntry
	order list.List                  // the most recently used first
}

// cacheKey is the SHA-256 digest of everything in a frame that determines its result. The digest must resist
// collisions: clients choose the frames, and two frames with the same key would get each other's results.
type cacheKey [sha256.Size]byte

type cacheEntry struct {
	key           cacheKey
	outputs       []Tensor
	params        Params
	width, height int
	size          int64
}

// entryOverhead is the size charged for an entry in addition to the data of its outputs.
const entryOverhead = 512

// NewCache returns a cache of results up to the given total of bytes.
func NewCache(bytes int64) *Cache {
	return &Cache{max: bytes, found: make(map[cacheKey]*list.Element)}
}

// Size returns the number and the bytes of the cached results; both are 0 for a nil cache.
func (c *Cache) Size() (results int, bytes int64) {
	if c == nil {
		return 0, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.found), c.used
}

func (c *Cache) get(key *cacheKey) *cacheEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.found[*key]
	if at == nil {
		return nil
	}
	c.order.MoveToFront(at)
	return at.Value.(*cacheEntry)
}

// put stores a copy of r, unless the copy would be larger than the cache.
func (c *Cache) put(key *cacheKey, r *Result) {
	e := &cacheEntry{key: *key, params: maps.Clone(r.Params), width: r.Width, height: r.Height, size: entryOverhead}
	data := 0
	for i := range r.Outputs {
		data += len(r.Outputs[i].Data)
		e.size += int64(len(r.Outputs[i].Name) + 8*len(r.Outputs[i].Shape) + 64)
	}
	for k, v := range r.Params {
		text, _ := v.(string)
		e.size += int64(len(k)+len(text)) + 64
	}
	if e.size += int64(data); e.size > c.max {
		return
	}
	all := make([]byte, 0, data)
	e.outputs = slices.Clone(r.Outputs)
	for i := range e.outputs {
		t, n := &e.outputs[i], len(all)
		all = append(all, t.Data...)
		t.Data, t.Shape = all[n:len(all):len(all)], slices.Clone(t.Shape)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found[e.key] != nil { // an equal request has run at the same time
		return
	}
	c.found[e.key] = c.order.PushFront(e)
	for c.used += e.size; c.used > c.max; {
		last := c.order.Back()
		old := c.order.Remove(last).(*cacheEntry)
		delete(c.found, old.key)
		c.used -= old.size
	}
}

// digest returns the key of a frame.
func digest(f *Frame) *cacheKey {
	d := digester{Hash: sha256.New()}
	for _, n := range [...]int{int(f.Codec), f.Width, f.Height, f.SourceWidth, f.SourceHeight, int(f.Region.X),
		int(f.Region.Y), int(f.Region.Width), int(f.Region.Height)} {
		d.number(uint64(n))
	}
	d.bytes(f.Payload)
	d.number(uint64(len(f.Inputs)))
	for i := range f.Inputs {
		t := &f.Inputs[i]
		d.bytes([]byte(t.Name))
		d.bytes([]byte(t.Datatype))
		d.number(uint64(len(t.Shape)))
		for _, n := range t.Shape {
			d.number(uint64(n))
		}
		d.bytes(t.Data)
	}
	for _, key := range slices.Sorted(maps.Keys(f.Params)) {
		d.bytes([]byte(key))
		d.value(f.Params[key])
	}
	key := new(cacheKey)
	d.Sum(key[:0])
	return key
}

// digester writes parts so that no two lists of parts have the same bytes: each part has a fixed length or is
// preceded by its length.
type digester struct {
	hash.Hash
	scratch [8]byte
}

func (d *digester) number(n uint64) {
	binary.LittleEndian.PutUint64(d.scratch[:], n)
	_, _ = d.Write(d.scratch[:])
}

func (d *digester) bytes(b []byte) {
	d.number(uint64(len(b)))
	_, _ = d.Write(b)
}

// value writes the value of a parameter with its type.
func (d *digester) value(v any) {
	switch v := v.(type) {
	case string:
		d.number(1)
		d.bytes([]byte(v))
	case int64:
		d.number(2)
		d.number(uint64(v))
	case float64:
		d.number(3)
		d.number(math.Float64bits(v))
	case bool:
		d.number(4)
		if v {
			d.number(1)
		} else {
			d.number(0)
		}
	}
}

// fromCache ends r with the cached result of an equal request, if the model has a cache with such a result.
func (s *Stream) fromCache(r *Request) bool {
	c, key := s.model.Cache, r.result.key
	if c == nil || key == nil {
		return false
	}
	e := c.get(key)
	if e == nil {
		r.counts.cacheMissTime.Add(int64(Now().Sub(r.Timing.Received)))
		r.counts.cacheMisses.Add(1)
		return false
	}
	r.counts.cacheHits.Add(1)
	r.Cached, r.result.key = true, nil
	r.result.Outputs, r.result.Params = e.outputs, e.params
	r.SentWidth, r.SentHeight = e.width, e.height
	r.Timing.Done = Now()
	r.counts.cacheHitTime.Add(int64(r.Timing.elapsed()))
	s.lastActive = r.Timing.Done
	s.endLocked(r, Answered, "", nil)
	return true
}

// Remember caches a copy of the result for equal requests, if the model of the result has a cache. The caller still
// owns the result.
func (r *Result) Remember() {
	if r.key != nil && r.Outcome == Answered && r.Model.Cache != nil {
		r.Model.Cache.put(r.key, r)
	}
}
