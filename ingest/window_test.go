package ingest_test

import (
	"testing"
	"testing/synctest"

	"millrace/ingest"
)

func TestWindowIsFull(t *testing.T) {
	w := ingest.NewWindow()
	w.Resize(2)
	for want := range uint64(2) {
		if w.Full() {
			t.Fatalf("full with %d of 2", want)
		}
		if seq := w.Receive(); seq != want {
			t.Fatalf("%d frames before the frame, want %d", seq, want)
		}
	}
	if !w.Full() || w.Unanswered() != 2 {
		t.Fatalf("%d unanswered, full: %v", w.Unanswered(), w.Full())
	}
	w.Answer(1)
	if w.Full() || w.Unanswered() != 1 || w.Received() != 2 || w.Answered() != 1 {
		t.Fatalf("%d of %d answered, %d unanswered, full: %v", w.Answered(), w.Received(), w.Unanswered(), w.Full())
	}
}

// A client may send as many frames as the server once permitted, even after a reduction of its window.
func TestLimitNeverFalls(t *testing.T) {
	w := ingest.NewWindow()
	w.Resize(4)
	for _, c := range []struct {
		answered uint64
		size     int
		want     uint64
	}{
		{0, 4, 4}, {2, 4, 6}, {0, 1, 6}, {2, 1, 6}, {2, 1, 7}, {0, 3, 9},
	} {
		w.Resize(c.size)
		w.Answer(c.answered)
		if got := w.Limit(); got != c.want {
			t.Fatalf("%d answered and a window of %d: the limit is %d, want %d", w.Answered(), c.size, got, c.want)
		}
	}
}

func TestWindowWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, done, stop := ingest.NewWindow(), make(chan bool, 1), make(chan struct{})
		for range 3 {
			w.Receive()
		}
		go func() { done <- w.Wait(2, stop) }()
		w.Answer(1)
		synctest.Wait()
		if len(done) != 0 {
			t.Fatal("2 frames are unanswered, and it waited for fewer")
		}
		w.Answer(1)
		if !<-done {
			t.Fatal("told to stop by nobody")
		}
		go func() { done <- w.Wait(1, stop) }()
		close(stop)
		if <-done {
			t.Fatal("it returned before the frame was answered")
		}
	})
}
