package coded_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"millrace/stream/coded"
)

func TestErrorNamesItsField(t *testing.T) {
	err := coded.Errorf(coded.InvalidArgument, "inputs[0].shape", "cannot be read: %w", io.ErrUnexpectedEOF)
	if got, want := err.Error(), "inputs[0].shape: cannot be read: unexpected EOF"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("the cause is lost")
	}
	if got := coded.Errorf(coded.Draining, "", "no more").Error(); got != "no more" {
		t.Errorf("%q without a field", got)
	}
}

func TestCodeOf(t *testing.T) {
	inner := coded.Errorf(coded.NotFound, "model", "is missing")
	for _, c := range []struct {
		err  error
		want coded.Code
	}{
		{nil, ""},
		{inner, coded.NotFound},
		{fmt.Errorf("here: %w", inner), coded.NotFound},
		{coded.Errorf(coded.Unavailable, "", "later: %w", inner), coded.Unavailable},
		{fmt.Errorf("here: %w", context.DeadlineExceeded), coded.Timeout},
		{context.Canceled, coded.Canceled},
		{io.EOF, coded.Internal},
	} {
		if got := coded.CodeOf(c.err); got != c.want {
			t.Errorf("%v has code %q, want %q", c.err, got, c.want)
		}
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct{ field, want string }{
		{"", "stream"}, {"window", "stream.window"}, {"[2].name", "stream[2].name"},
	} {
		err := coded.PrefixField("stream", fmt.Errorf("wrapped: %w", coded.Errorf(coded.TooLarge, c.field, "is wrong")))
		var e *coded.Error
		if !errors.As(err, &e) || e.Field != c.want || e.Code != coded.TooLarge || e.Msg != "is wrong" {
			t.Errorf("%q became %#v", c.field, e)
		}
	}
	if err := coded.PrefixField("stream", io.EOF); err != io.EOF {
		t.Errorf("an error without a code became %v", err)
	}
	if err := coded.PrefixField("stream", nil); err != nil {
		t.Errorf("nil became %v", err)
	}
}

func TestRename(t *testing.T) {
	names := map[string]string{"roi": "ext.roi"}
	if got := coded.Rename(coded.Errorf(coded.Unsupported, "roi", "is left out"),
		names).Error(); got != "ext.roi: is left out" {
		t.Errorf("%q", got)
	}
	other := coded.Errorf(coded.Unsupported, "codec", "is not known")
	if got := coded.Rename(other, names); got != error(other) {
		t.Errorf("another field became %v", got)
	}
}

// Each of several joined errors gets its protocol name, also when wrapped in other errors.
func TestRenameJoined(t *testing.T) {
	two := errors.Join(coded.Errorf(coded.InvalidArgument, "a", "is wrong"), errors.New("plain"),
		coded.Errorf(coded.InvalidArgument, "b", "is wrong"))
	for _, err := range []error{two, fmt.Errorf("load: %w", two)} {
		if got, want := coded.PrefixField("x", err).Error(), "x.a: is wrong\nplain\nx.b: is wrong"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if all, before := coded.Joined(fmt.Errorf("load: %w", two)); len(all) != 3 || before != "load: " {
		t.Errorf("%v, %q", all, before)
	}
	for _, err := range []error{nil, io.EOF, coded.Errorf(coded.Internal, "", "first: %w", two),
		fmt.Errorf("%w, because %w", io.EOF, io.EOF)} {
		if all, _ := coded.Joined(err); all != nil {
			t.Errorf("%v: joined of %v", err, all)
		}
	}
}
