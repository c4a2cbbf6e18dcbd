package tasks

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"

	"millrace/internal/ctxio"
	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// An input or a result that another process has written is read once as a whole, before a model or a client gets the
// first byte. The checksums of the parts, of this reading or of the writing, are remembered, so that later readers
// compare only the parts that they read.
const (
	partSize = 256 << 10
	maxParts = 1 << 20 // of all remembered results: checksums of 4 MiB
	ownParts = 256     // for which a remembered result counts beside its parts: names and places take memory too
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// verified remembers the checksums of the inputs and results that were written or read last.
type verified struct {
	mu      sync.Mutex
	results map[string]*list.Element // by the key of the blob, of *partSums
	recent  list.List                // the newest first
	parts   int
	reading map[string]chan struct{} // results that are being read; closed at the end
}

// partSums are the checksums of the parts of one version of a result.
type partSums struct {
	key   string
	stamp blob.Stamp
	sums  []uint32
}

// get returns the checksums of a version of a result; nil = unknown. wait = another goroutine computes the checksums.
// Otherwise the caller computes the checksums, and calls put.
func (v *verified) get(key string, stamp blob.Stamp) (found *partSums, wait <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e := v.results[key]; e != nil {
		if p := e.Value.(*partSums); p.stamp.Same(stamp) {
			v.recent.MoveToFront(e)
			return p, nil
		}
		v.remove(e)
	}
	if reading := v.reading[key]; reading != nil {
		return nil, reading
	}
	if v.results == nil {
		v.results, v.reading = map[string]*list.Element{}, map[string]chan struct{}{}
	}
	v.reading[key] = make(chan struct{})
	return nil, nil
}

// put ends the computing of checksums; nil = the computing has failed.
func (v *verified) put(key string, p *partSums) {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.reading[key])
	delete(v.reading, key)
	if p != nil {
		v.insert(p)
	}
}

// insert remembers checksums, in place of earlier checksums of the blob. The caller holds mu.
func (v *verified) insert(p *partSums) {
	if e := v.results[p.key]; e != nil {
		v.remove(e)
	}
	if len(p.sums) > maxParts {
		return
	}
	v.results[p.key] = v.recent.PushFront(p)
	for v.parts += len(p.sums) + ownParts; v.parts > maxParts && v.recent.Len() > 1; {
		v.remove(v.recent.Back())
	}
}

// partSummer computes the checksums of the parts of a blob that is being written.
type partSummer struct {
	sums    []uint32
	sum     uint32
	size    int64
	unknown bool // bytes were written elsewhere
}

func (p *partSummer) add(b []byte) {
	for len(b) > 0 {
		n := min(int64(len(b)), partSize-p.size%partSize)
		p.sum = crc32.Update(p.sum, castagnoli, b[:n])
		if p.size += n; p.size%partSize == 0 {
			p.sums, p.sum = append(p.sums, p.sum), 0
		}
		b = b[n:]
	}
}

// end returns the checksums after the last byte.
func (p *partSummer) end() []uint32 {
	if p.size%partSize > 0 {
		return append(p.sums, p.sum)
	}
	return p.sums
}

// remember remembers the checksums of a blob that this process has written: readers need not read the whole first.
func (s *Store) remember(ctx context.Context, key string, sums []uint32) {
	r, err := s.blobs.Open(ctx, key)
	if err != nil {
		return
	}
	defer func() { _ = r.Close() }()
	stamped, ok := r.(blob.Stamped)
	if !ok {
		return
	}
	if stamp, err := stamped.Stamp(); err == nil {
		s.verified.keep(&partSums{key: key, stamp: stamp, sums: sums})
	}
}

// keep remembers checksums.
func (v *verified) keep(p *partSums) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.results == nil {
		v.results, v.reading = map[string]*list.Element{}, map[string]chan struct{}{}
	}
	v.insert(p)
}

// forget forgets the checksums of a damaged result: the next reader reads the whole again.
func (v *verified) forget(p *partSums) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e := v.results[p.key]; e != nil && e.Value == p {
		v.remove(e)
	}
}

// remove forgets a result. The caller holds mu.
func (v *verified) remove(e *list.Element) {
	p := v.recent.Remove(e).(*partSums)
	delete(v.results, p.key)
	v.parts -= len(p.sums) + ownParts
}

// open returns a reader of a stored result that compares each part before the caller gets the part.
func (v *verified) open(ctx context.Context, key string, r blob.Reader, want blob.Info) (blob.Reader, error) {
	stamped, ok := r.(blob.Stamped)
	if !ok { // small, and in memory
		return r, verify(ctx, r, want)
	}
	stamp, err := stamped.Stamp()
	if err != nil {
		return nil, err
	}
	for {
		p, wait := v.get(key, stamp)
		if p != nil {
			return &partReader{Reader: r, of: v, sums: p, part: -1}, nil
		}
		if wait == nil {
			break
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	p, err := sumParts(ctx, r, want)
	if err == nil {
		p.key, p.stamp = key, stamp
	}
	v.put(key, p)
	if err != nil {
		return nil, err
	}
	return &partReader{Reader: r, of: v, sums: p, part: -1}, nil
}

// sumParts reads a result, compares the SHA-256, and returns the checksums of the parts.
func sumParts(ctx context.Context, r blob.Reader, want blob.Info) (*partSums, error) {
	in, all, p := ctxio.Reader(ctx, r), sha256.New(), &partSums{}
	b, size := make([]byte, min(partSize, max(1, r.Size()))), int64(0)
	for {
		n, err := io.ReadFull(in, b)
		if n > 0 {
			all.Write(b[:n])
			p.sums, size = append(p.sums, crc32.Checksum(b[:n], castagnoli)), size+int64(n)
		}
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if got := (blob.Info{Size: size, SHA256: hex.EncodeToString(all.Sum(nil))}); got != want {
		return nil, blob.Damaged(got, want)
	}
	return p, nil
}

// partReader reads an input or a result part by part.
type partReader struct {
	blob.Reader
	of   *verified
	sums *partSums

	mu   sync.Mutex
	at   int64
	part int64 // in buf; -1 = none
	buf  []byte
}

// Check reads and compares the part with the next byte of Read.
func (r *partReader) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at >= r.Size() {
		return nil
	}
	return r.load(r.at)
}

// Path returns the path of the file for a program, after a comparison of all bytes.
func (r *partReader) Path(ctx context.Context, want blob.Info) (string, error) {
	file, ok := r.Reader.(interface{ Name() string })
	if !ok {
		return "", coded.Errorf(coded.Internal, "input", "the stored input has no path that a program could read")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.part = -1
	_, err := r.Reader.Seek(0, io.SeekStart)
	if err == nil {
		err = want.Check(ctxio.Reader(ctx, r.Reader))
	}
	return file.Name(), err
}

// load reads the part with the byte at an offset, and compares the checksum. The caller holds mu.
func (r *partReader) load(at int64) error {
	n := at / partSize
	if r.part == n {
		return nil
	}
	r.part = -1
	size := min(partSize, r.Size()-n*partSize)
	if int64(cap(r.buf)) < size {
		r.buf = make([]byte, size)
	}
	r.buf = r.buf[:size]
	if _, err := r.Reader.Seek(n*partSize, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.ReadFull(r.Reader, r.buf); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && err != io.EOF {
		return err
	} else if err != nil || n >= int64(len(r.sums.sums)) || crc32.Checksum(r.buf, castagnoli) != r.sums.sums[n] {
		r.of.forget(r.sums)
		return coded.Errorf(coded.Internal, "", "%w: %s, the bytes from %d", blob.ErrDamaged, r.sums.key, n*partSize)
	}
	r.part = n
	return nil
}

// Read implements io.Reader.
func (r *partReader) Read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at >= r.Size() {
		return 0, io.EOF
	}
	if err := r.load(r.at); err != nil {
		return 0, err
	}
	n := copy(b, r.buf[r.at%partSize:])
	r.at += int64(n)
	return n, nil
}

// ReadAt implements io.ReaderAt.
func (r *partReader) ReadAt(b []byte, at int64) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n < len(b) {
		if at >= r.Size() {
			return n, io.EOF
		}
		if err := r.load(at); err != nil {
			return n, err
		}
		more := copy(b[n:], r.buf[at%partSize:])
		n, at = n+more, at+int64(more)
	}
	return n, nil
}

// Seek implements io.Seeker.
func (r *partReader) Seek(offset int64, whence int) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.Size()
	}
	if offset < 0 {
		return 0, fmt.Errorf("offset %d: %w", offset, os.ErrInvalid)
	}
	r.at = offset
	return offset, nil
}
