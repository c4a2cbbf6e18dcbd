package recording

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	signature = "\x89MILL\r\n\x1a"
	version   = 1
	preamble  = 16 // bytes before the first record

	frameLen = 8  // length and checksum before each body
	headLen  = 24 // of the body, before its JSON
	entryLen = 32 // of the index
	endLen   = frameLen + headLen + 8

	// MaxRecord bounds a frame or an ending, in bytes of the file.
	MaxRecord = 1 << 30
)

// kind of a record.
type kind byte

const (
	kindHeader kind = 'H'
	kindFrame  kind = 'F'
	kindEnding kind = 'E'
	kindIndex  kind = 'I'
	kindEnd    kind = 'Z'
)

// record is a decoded record.
type record struct {
	kind kind
	seq  uint64
	at   int64
	json []byte
	data []byte
}

// entry is an entry of the index: the offset of a frame or ending.
type entry struct {
	kind   kind
	seq    uint64
	offset int64
	at     int64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the checksum of the length of a body and the body.
func checksum(length, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(length, castagnoli), castagnoli, body)
}

// appendHead appends a record without its data; parts are the data.
func appendHead(dst []byte, r *record, parts [][]byte) ([]byte, error) {
	n := headLen + len(r.json)
	for _, p := range parts {
		n += len(p)
	}
	if n > MaxRecord {
		return dst, fmt.Errorf("recording: frame %d: a record of %d bytes; the limit is %d", r.seq, n, MaxRecord)
	}
	le := binary.LittleEndian
	start := len(dst)
	dst = le.AppendUint32(dst, uint32(n))
	dst = append(dst, 0, 0, 0, 0, byte(r.kind), 0, 0, 0)
	dst = le.AppendUint32(dst, uint32(len(r.json)))
	dst = le.AppendUint64(dst, r.seq)
	dst = le.AppendUint64(dst, uint64(r.at))
	dst = append(dst, r.json...)
	sum := checksum(dst[start:start+4], dst[start+frameLen:])
	for _, p := range parts {
		sum = crc32.Update(sum, castagnoli, p)
	}
	le.PutUint32(dst[start+4:], sum)
	return dst, nil
}

// errCut is the error of a record longer than the rest of the file.
var errCut = errors.New("the file ends within a record")

// readRecord reads the record at an offset; the record must end at or before end. readRecord uses the memory of buf
// if large enough. next is the offset after the record.
func readRecord(src io.ReaderAt, offset, end int64, buf []byte) (r record, next int64, mem []byte, err error) {
	var pre [frameLen]byte
	if end-offset < frameLen {
		return r, 0, buf, errCut
	}
	if err := readAt(src, pre[:], offset); err != nil {
		return r, 0, buf, err
	}
	le := binary.LittleEndian
	n := int64(le.Uint32(pre[:]))
	switch {
	case n > end-offset-frameLen:
		return r, 0, buf, errCut
	case n < headLen || n > MaxRecord:
		return r, 0, buf, fmt.Errorf("a record has an invalid length of %d bytes", n)
	}
	if int64(cap(buf)) < n {
		buf = make([]byte, n)
	}
	body := buf[:n]
	if err := readAt(src, body, offset+frameLen); err != nil {
		return r, 0, buf, err
	}
	if checksum(pre[:4], body) != le.Uint32(pre[4:]) {
		return r, 0, buf, errors.New("the checksum of a record is wrong")
	}
	text := int64(le.Uint32(body[4:]))
	if text > n-headLen {
		return r, 0, buf, errors.New("a record's JSON is longer than the record")
	}
	r = record{kind: kind(body[0]), seq: le.Uint64(body[8:]), at: int64(le.Uint64(body[16:])),
		json: body[headLen : headLen+text], data: body[headLen+text:]}
	return r, offset + frameLen + n, buf, nil
}

// readAt reads len(p) bytes. If the file has become shorter, the error is errCut.
func readAt(src io.ReaderAt, p []byte, offset int64) error {
	if n, err := src.ReadAt(p, offset); n < len(p) {
		if errors.Is(err, io.EOF) {
			return errCut
		}
		return err
	}
	return nil
}
