package httpd

import (
	"io"
	"math"
	"strconv"

	"github.com/valyala/fasthttp"
)

// badChunks is the error of a body in chunks that programs read in different ways: the text after the word "body".
type badChunks string

func (b badChunks) Error() string { return "the body is not correct HTTP/1.1: " + string(b) }

// maxSize is the length of a chunk's size, a hexadecimal number of 64 bits.
const maxSize = 16

// chunks is the content of a body in chunks (RFC 9112, section 7.1). fasthttp's own reader accepts much that other
// programs read differently, such as an LF within an extension, and turns trailers into headers. Here lines end with
// CR LF, and extensions and trailers, not sent by any common client, are errors.
type chunks struct {
	head      *fasthttp.RequestHeader
	body      io.Reader // fasthttp's stream
	remaining int64     // unread bytes of the current chunk
	err       error     // of the last read
	one       [1]byte   // of next
}

// chunksKey is the key of a request's reader of chunks.
type chunksKey struct{}

// bodyOf returns the stream of a request's body, always the same stream, nil for none.
func bodyOf(c *fasthttp.RequestCtx) io.Reader {
	body := c.RequestBodyStream()
	if body == nil || c.Request.Header.ContentLength() >= 0 {
		return body
	}
	if r, ok := c.UserValue(chunksKey{}).(*chunks); ok {
		return r
	}
	r := &chunks{head: &c.Request.Header, body: body}
	c.SetUserValue(chunksKey{}, r)
	return r
}

// Read implements io.Reader. Read reads no byte after the body.
func (c *chunks) Read(p []byte) (n int, err error) {
	if c.err != nil {
		return 0, c.err
	}
	// Without a length, fasthttp's stream parses chunks by itself; with a length, the stream returns the bytes
	// unchanged.
	c.head.SetContentLength(math.MaxInt)
	defer c.head.SetContentLength(-1)
	if c.remaining == 0 {
		if c.remaining, c.err = c.size(); c.err != nil {
			return 0, c.err
		}
	}
	n, c.err = c.body.Read(p[:min(int64(len(p)), c.remaining)])
	c.remaining -= int64(n)
	switch {
	case c.err == io.EOF:
		c.err = io.ErrUnexpectedEOF
	case c.err == nil && c.remaining == 0:
		c.err = c.lineEnd("a chunk does not end with CR LF")
	}
	return n, c.err
}

// size reads the size of the next chunk. The last one's end is the end of the body: io.EOF.
func (c *chunks) size() (int64, error) {
	var digits [maxSize]byte
	n := 0
	for ; ; n++ {
		b, err := c.next()
		if err != nil {
			return 0, err
		}
		if b == '\r' {
			break
		}
		if n == maxSize {
			return 0, badChunks("the size of a chunk has more than 16 digits")
		}
		digits[n] = b
	}
	if b, err := c.next(); err != nil {
		return 0, err
	} else if b != '\n' {
		return 0, badChunks("the size of a chunk does not end with CR LF")
	}
	size, err := strconv.ParseInt(string(digits[:n]), 16, 64)
	if err != nil || digits[0] == '+' || digits[0] == '-' {
		return 0, badChunks("the size of a chunk is not a hexadecimal number, or has an extension")
	}
	if size > 0 {
		return size, nil
	}
	if err := c.lineEnd("it has trailers, or does not end with CR LF"); err != nil {
		return 0, err
	}
	return 0, io.EOF
}

// lineEnd reads CR LF, and returns the error what for anything else.
func (c *chunks) lineEnd(what badChunks) error {
	for _, want := range []byte("\r\n") {
		b, err := c.next()
		if err != nil {
			return err
		}
		if b != want {
			return what
		}
	}
	return nil
}

// next reads one byte. The end of the stream is an error.
func (c *chunks) next() (byte, error) {
	_, err := io.ReadFull(c.body, c.one[:])
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return c.one[0], err
}
