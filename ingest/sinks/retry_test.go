package sinks

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// silent stands for a receiver that reads a post and does not answer.
const silent = -1

// receiver answers posts with statuses in turn, and repeats the last status; 0 = no answer.
type receiver struct {
	statuses []int

	mu     sync.Mutex
	at     []time.Time
	posts  []string // id and body
	signed bool
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := hmac.New(sha256.New, []byte("s"))
	sum.Write(body)
	r.signed = req.Header.Get("X-Millrace-Signature") == "sha256="+hex.EncodeToString(sum.Sum(nil))
	status := r.statuses[min(len(r.at), len(r.statuses)-1)]
	r.at = append(r.at, time.Now())
	id := req.Header.Get("X-Millrace-Delivery")
	r.posts = append(r.posts, id[strings.LastIndexByte(id, '-')+1:]+" "+string(body))
	switch status {
	case 0:
		return nil, errors.New("nobody there")
	case silent:
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status),
		Body: io.NopCloser(bytes.NewReader(nil))}, nil
}

// count returns the number of received posts.
func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.posts)
}

func open(r *receiver, secret string) *webhook {
	h := (&Webhook{URL: "http://receiver.test/", Secret: secret}).Open(Env{Stream: "door",
		Log: slog.New(slog.DiscardHandler)}).(*webhook)
	h.client.HTTP.Transport = r
	return h
}

// The log has the first failure in a row and the success after the failure, for any number of attempts and results,
// and no secret part of the address.
func TestWebhookLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		const secret = "T0FS3CR3T"
		h := (&Webhook{URL: "http://user:" + secret + "@receiver.test/" + secret + "?token=" + secret}).Open(
			Env{Stream: "door", Log: slog.New(slog.NewTextHandler(&log, nil))}).(*webhook)
		h.client.HTTP.Transport = &receiver{statuses: []int{200, 0, 0, 500, 200, 200, 503, 200, 404}}
		for range 5 * webhookBatch {
			h.Write([]byte(`{}`))
		}
		h.Close()
		h.Run(t.Context())
		failed, again := strings.Count(log.String(), "level=WARN"), strings.Count(log.String(), "level=INFO")
		if failed != 4 || again != 2 || strings.Count(log.String(), "\n") != 6 ||
			strings.Count(log.String(), "stream=door address=http://receiver.test") != 6 {
			t.Errorf("%d failures and %d successes are logged, want 4 and 2:\n%s", failed, again, &log)
		}
		for _, want := range []string{"results wait", "fails, and is not tried again",
			"takes results again", "lost=0", "loses results", "lost=100"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, &log)
			}
		}
		if strings.Contains(log.String(), secret) || !strings.Contains(log.String(), "Service Unavailable") {
			t.Errorf("the log has a secret, or not the reason:\n%s", &log)
		}
	})
}

// While the receiver is unreachable or busy, a delivery is retried with doubling waits, and lost after the last
// attempt. A refused delivery is not retried.
func TestDeliveriesAreTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		statuses []int
		attempts int
		sent     uint64
	}{
		"taken": {[]int{200}, 1, 1}, "also taken": {[]int{299}, 1, 1}, "refused": {[]int{400}, 1, 0},
		"elsewhere": {[]int{302}, 1, 0},
		"silent":    {[]int{silent, 200}, 2, 1},
		"busy":      {[]int{429, 408, 500, 503, 0, 204}, 6, 1}, "away": {[]int{0}, webhookAttempts, 0},
		"refused at last": {[]int{499 + 1, 499}, 2, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &receiver{statuses: c.statuses}
			h := open(r, "s")
			h.Write([]byte(`{}`))
			h.Close()
			h.Run(t.Context())
			st := h.Stats()
			if len(r.at) != c.attempts || st.Retries != uint64(c.attempts-1) || st.Sent != c.sent ||
				st.Lost != 1-c.sent || (st.Error == "") != (c.sent == 1) {
				t.Errorf("%s: %d attempts, %+v", name, len(r.at), st)
			}
			most := time.Second
			for i := 1; i < len(r.at); i++ {
				wait := r.at[i].Sub(r.at[i-1])
				if c.statuses[0] == silent {
					wait -= 10 * time.Second
				}
				if wait < most/2 || wait > most {
					t.Errorf("%s: wait %d is %v, want %v to %v", name, i, wait, most/2, most)
				}
				most = min(2*most, 30*time.Second)
			}
			for _, p := range r.posts {
				if p != `1 {"stream":"door","results":[{}]}` || !r.signed {
					t.Errorf("%s: posted %s, signed %v", name, p, r.signed)
				}
			}
		})
	}
}

// A full batch is posted at once, another batch some time after its first result. Results that do not fit into the
// queue are lost.
func TestBatchesOfDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{statuses: []int{200}}
		h := open(r, "")
		begin := time.Now()
		ended := make(chan struct{})
		go func() { defer close(ended); h.Run(t.Context()) }()
		h.Write([]byte(`1`))
		time.Sleep(webhookDelay - 1)
		h.Write([]byte(`2`))
		synctest.Wait()
		if n := r.count(); n != 0 {
			t.Errorf("%d posts before their time", n)
		}
		time.Sleep(time.Second)
		for i := range webhookBatch + 1 {
			h.Write(fmt.Appendf(nil, "%d", i))
		}
		synctest.Wait()
		if len(r.posts) != 2 || r.posts[0] != `1 {"stream":"door","results":[1,2]}` ||
			r.at[0].Sub(begin) != webhookDelay || !strings.HasPrefix(r.posts[1], "2 ") ||
			strings.Count(r.posts[1], ",") != webhookBatch {
			t.Errorf("%d posts: %q at %v", len(r.posts), r.posts, r.at)
		}
		h.Close()
		<-ended
		if st := h.Stats(); st.Sent != webhookBatch+3 || st.Lost != 0 {
			t.Errorf("%+v", st)
		}
	})
	h := open(&receiver{statuses: []int{200}}, "")
	for range webhookQueue + 2 {
		h.Write([]byte(`1`))
	}
	if st := h.Stats(); st.Lost != 2 {
		t.Errorf("%+v", st)
	}
}

// When the stream ends, a delivery waiting for its next attempt gets one more attempt at once.
func TestEndOfDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &receiver{statuses: []int{503}}
		h := open(r, "")
		ctx, cancel := context.WithCancel(t.Context())
		h.Write([]byte(`1`))
		h.Close()
		ended := make(chan struct{})
		go func() { defer close(ended); h.Run(ctx) }()
		synctest.Wait() // the sink waits for the second attempt
		begin := time.Now()
		cancel()
		<-ended
		if len(r.at) != 2 || r.at[1] != begin || h.Stats().Lost != 1 {
			t.Errorf("%d attempts, the last after %v, %+v", len(r.at), r.at[len(r.at)-1].Sub(begin), h.Stats())
		}
	})
}

// A file is rotated when the next line does not fit, to the byte, also after reopening, and a limited number of old
// files is kept. A line too long for any file is alone in a file.
func TestFullFilesArePutAside(t *testing.T) {
	for _, most := range []int64{8, 11} { // two lines of 4 bytes fit
		path := filepath.Join(t.TempDir(), "results.jsonl")
		f := Open(&File{Path: path}, Env{Stream: "door", Log: slog.New(slog.DiscardHandler)}).(*file)
		f.max = most
		f.Write([]byte("longer than a file may be"))
		if _, err := os.Stat(path + ".1"); err == nil {
			t.Error("an empty file was put aside")
		}
		for i := range 4 {
			f.Close()
			for k := range 2 {
				f.Write(fmt.Appendf(nil, "%d,%d", i, k))
			}
		}
		f.Write([]byte("longer than a file may be"))
		for name, want := range map[string]string{
			"": "longer than a file may be\n", ".1": "3,0\n3,1\n", ".2": "2,0\n2,1\n", ".3": "1,0\n1,1\n",
		} {
			if text, err := os.ReadFile(path + name); err != nil || string(text) != want {
				t.Errorf("%s: %q, %v, want %q", name, text, err, want)
			}
		}
		if _, err := os.Stat(path + ".4"); err == nil {
			t.Error("more files than are kept")
		}
		if st := f.Stats(); st.Sent != 10 || st.Lost != 0 {
			t.Errorf("%+v", st)
		}
		f.Close()
	}
}

// The first setting of each kind of sink enables the sink. Other settings without the first setting are refused.
func TestSinksAreOnByTheirAddress(t *testing.T) {
	for _, c := range []struct {
		on, off, wrong Settings
	}{
		{&File{Path: "x"}, &File{}, &File{MaxSize: 2048}}, {&Webhook{URL: "http://a/"}, &Webhook{},
			&Webhook{Secret: "s"}},
		{&Socket{Path: strings.Repeat("x", socketPath)}, &Socket{}, &Socket{Path: strings.Repeat("x", socketPath+1)}},
	} {
		if k := KindOf(c.on); fmt.Sprintf("%T", k.New()) != fmt.Sprintf("%T", c.on) {
			t.Errorf("%T is taken for a %s", c.on, k.Name)
		}
		if !c.on.Enabled() || c.on.Validate() != nil || c.off.Enabled() || c.off.Validate() != nil ||
			c.wrong.Validate() == nil {
			t.Errorf("%T: on %v %v, off %v %v, wrong %v", c.on, c.on.Enabled(), c.on.Validate(), c.off.Enabled(),
				c.off.Validate(), c.wrong.Validate())
		}
	}
	for _, bad := range []string{"ftp://a/", "a/b", "https://", "http:", ":x"} {
		if err := (&Webhook{URL: bad}).Validate(); err == nil {
			t.Errorf("the address %q is taken", bad)
		}
	}
}

// A connection to a receiver is kept for half a minute without posts.
func TestIdleConnectionOfDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := Env{Stream: "door", Log: slog.New(slog.DiscardHandler)}
		h := (&Webhook{URL: "http://receiver.test/"}).Open(env).(*webhook)
		idle := make(chan time.Duration)
		transport := h.client.HTTP.Transport.(*http.Transport)
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				in := bufio.NewReader(far)
				req, err := http.ReadRequest(in)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				_, _ = io.WriteString(far, "HTTP/1.1 204 No Content\r\n\r\n")
				begin := time.Now()
				_, _ = in.ReadByte()
				idle <- time.Since(begin)
			}()
			return near, nil
		}
		go h.Run(t.Context())
		h.Write([]byte(`1`))
		if took := <-idle; took != 30*time.Second {
			t.Errorf("closed after %v", took)
		}
		h.Close()
	})
}
