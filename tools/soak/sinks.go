package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// receiver gets the posts of webhooks, and counts the results of each stream in the accepted posts.
type receiver struct {
	*httptest.Server
	down  atomic.Bool // answers 503
	hangs atomic.Bool // reads a post and closes the connection without an answer

	mu       sync.Mutex
	accepted map[string]bool   // by the post's name
	results  map[string]uint64 // by stream
	repeated uint64            // posts accepted before
}

func newReceiver() *receiver {
	r := &receiver{accepted: map[string]bool{}, results: map[string]uint64{}}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	return r
}

func (r *receiver) serve(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	if r.hangs.Load() {
		panic(http.ErrAbortHandler)
	}
	if r.down.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var post struct {
		Stream  string
		Results []json.RawMessage
	}
	if err := json.Unmarshal(body, &post); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	name := q.Header.Get("X-Millrace-Delivery")
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.accepted[name] {
		r.repeated++
		return
	}
	r.accepted[name] = true
	r.results[post.Stream] += uint64(len(post.Results))
}

// got returns the number of results of a stream.
func (r *receiver) got(stream string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.results[stream]
}

func (r *receiver) heal() {
	r.down.Store(false)
	r.hangs.Store(false)
}

// rotations numbers the renamed files.
var rotations atomic.Int64

// rotate renames the file of a sink, like a log rotation program.
func rotate(path string) error {
	return os.Rename(path, fmt.Sprintf("%s.away-%d", path, rotations.Add(1)))
}

// lines counts the results in the file of a sink, in the files renamed by the server and in the files renamed by
// rotate. Each line must be whole, and its number above the previous numbers in the same file.
func lines(path, stream string) (n uint64, err error) {
	files, err := filepath.Glob(path + "*")
	if err != nil {
		return 0, err
	}
	for _, name := range files {
		one, err := linesOf(name, stream)
		if err != nil {
			return n, err
		}
		n += one
	}
	return n, nil
}

func linesOf(name, stream string) (n uint64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	last := map[string]int64{} // by model
	for in := bufio.NewReader(f); ; n++ {
		text, err := in.ReadString('\n')
		if err == io.EOF && text == "" {
			return n, nil
		}
		var l struct {
			Stream, Model string
			Seq           *int64
		}
		if jsonErr := json.Unmarshal([]byte(text), &l); err != nil || jsonErr != nil || l.Seq == nil ||
			l.Stream != stream {
			return n, fmt.Errorf("%s: line %d is no result of stream %s: %v %v: %.200s", name, n+1, stream, err,
				jsonErr, strings.TrimSpace(text))
		}
		if before, ok := last[l.Model]; ok && *l.Seq <= before {
			return n, fmt.Errorf("%s: line %d of model %s has the number %d after %d", name, n+1, l.Model, *l.Seq,
				before)
		}
		last[l.Model] = *l.Seq
	}
}

// sinkPatience bounds a sink's time for the waiting results.
const sinkPatience = 2 * time.Minute
