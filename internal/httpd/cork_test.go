package httpd

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"testing"
)

// TestCork checks that bytes written to a corked connection leave together, in order, with a separate write when the
// buffer is full.
func TestCork(t *testing.T) {
	inner := &writes{}
	w := &conn{Conn: inner}
	if err := w.Uncork(); err != nil || len(inner.all) != 0 {
		t.Error("a connection that was never corked:", err, inner.all)
	}
	write := func(texts ...string) {
		for _, s := range texts {
			if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
				t.Errorf("%q: %d, %v", s, n, err)
			}
		}
	}
	room := make([]byte, 8)
	write("before")
	w.Cork(room)
	write("one", "two", "3", "4", "five", "is longer than the buffer", "six")
	if err := w.Uncork(); err != nil {
		t.Error(err)
	}
	copy(room, "overwritten")
	write("after")
	w.Cork(room)
	if err := w.Uncork(); err != nil {
		t.Error(err)
	}
	want := [][]byte{[]byte("before"), []byte("onetwo34"), []byte("five"), []byte("is longer than the buffer"),
		[]byte("six"), []byte("after")}
	if !slices.EqualFunc(inner.all, want, bytes.Equal) {
		t.Errorf("%q, want %q", inner.all, want)
	}
}

// TestCorkTellsErrors checks that the write that failed, or Uncork, returns the error.
func TestCorkTellsErrors(t *testing.T) {
	near, far := net.Pipe()
	_ = far.Close()
	w := newConn(near)
	w.Cork(make([]byte, 8))
	if _, err := w.Write([]byte("12345678")); err != nil {
		t.Error("a write that is collected:", err)
	}
	if n, err := w.Write([]byte("9")); n != 0 || err == nil {
		t.Error("a write for which there is no room:", n, err)
	}
	if err := w.Uncork(); err != nil {
		t.Error("nothing is left, but", err)
	}
	w.Cork(make([]byte, 8))
	_, _ = w.Write([]byte("1"))
	if err := w.Uncork(); err == nil || errors.Is(err, net.ErrClosed) {
		t.Error("the rest:", err)
	}
}
