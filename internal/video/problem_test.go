package video

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// closedPort returns the address of a closed port.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// statuses serves /N with the status N.
func statuses(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		n, _ := strconv.Atoi(strings.Trim(q.URL.Path, "/"))
		w.WriteHeader(n)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// changed writes a copy of a file with every old replaced by now.
func changed(t *testing.T, path, old, now string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(data, []byte(old)) {
		t.Fatalf("%s has no %q: %v", path, old, err)
	}
	return write(t, filepath.Base(path), bytes.ReplaceAll(data, []byte(old), []byte(now)))
}

// noise overwrites a part of a file from the first occurrence of a text on.
func noise(t *testing.T, path, after string, n int) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	i := bytes.Index(data, []byte(after)) + len(after)
	for k := i; k < min(i+n, len(data)); k++ {
		data[k] = byte(k*k + 7*k>>3)
	}
	return write(t, filepath.Base(path), data)
}

// The text of each failure is a sentence in words of this package. ffmpeg's lines are in Output, without secrets.
func TestProblemsAreOneSentence(t *testing.T) {
	web, nobody := statuses(t), closedPort(t)
	mkv := clip(t, "s.mkv", "-i", sample(t), "-c", "copy")
	playlist := write(t, "list.m3u8", []byte("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\ngopher://127.0.0.1/"+
		"a.ts\n#EXT-X-ENDLIST\n"))
	for _, c := range []struct {
		name, url string
		kind      Kind
		text      string // of the error, behind the address
		output    string // in Output; "" where ffmpeg had not begun
	}{
		{"http refused", secret("http://"+nobody, "/x.mp4"), Refused,
			"the connection was refused or failed (nothing accepts connections at this port)", "Connection refused"},
		{"rtsp refused", secret("rtsp://"+nobody, "/x"), Refused,
			"the connection was refused or failed (nothing accepts connections at this port)", ""},
		{"no such host", "http://millrace.invalid/x.mp4", NotFound,
			"there is nothing at this address (no host of this name was found)", "resolve hostname"},
		{"http 401", secret(web, "/401"), Auth,
			"access was denied; check user name and password (the server answers 401 Unauthorized)", "401"},
		{"http 403", secret(web, "/403"), Auth,
			"access was denied; check user name and password (the server answers 403 Forbidden)", "403"},
		{"http 404", secret(web, "/404"), NotFound,
			"there is nothing at this address (the server answers 404 Not Found)", "404"},
		{"http 418", secret(web, "/418"), Refused,
			"the connection was refused or failed (the server answers 418 I'm a teapot)", "418"},
		{"http 503", secret(web, "/503"), Refused,
			"the connection was refused or failed (the server answers 503 Service Unavailable)", "503"},
		{"rtsp 401", secret(rtspReplies(t, "401 Unauthorized"), "/x"), Auth,
			"access was denied; check user name and password (the server answers 401 Unauthorized)", "401"},
		{"rtsp 404", secret(rtspReplies(t, "404 Not Found"), "/x"), NotFound,
			"there is nothing at this address (the server answers 404 Not Found)", "404"},
		{"rtsp 461", secret(rtspReplies(t, "461 Unsupported Transport"), "/x"), Refused,
			"the connection was refused or failed (" + wrongTransport + ")", "4XX"},
		{"rtsp 454", secret(rtspReplies(t, "454 Session Not Found"), "/x"), Refused,
			"the connection was refused or failed (the server answers 454)", "4XX"},
		{"no file", filepath.Join(t.TempDir(), "missing.mp4"), NotFound,
			"there is nothing at this address (no such file)", "No such file"},
		{"no video", write(t, "noise.bin", bytes.Repeat([]byte{1, 5, 0x33, 0xf9}, 5000)), NotVideo,
			"there is no video in it (" + damaged + ")", "Invalid data"},
		{"a text", write(t, "text.txt", bytes.Repeat([]byte("All work and no play.\n"), 4000)), NotVideo,
			"there is no video in it (it is a text file)", ""},
		{"a codec that nobody knows", changed(t, mkv, "V_MPEG4/ISO/AVC", "V_MPEG9/ISO/XYZ"), Unsupported,
			"ffmpeg cannot or may not read this (its codec is not supported)", "not found for input stream"},
		{"a protocol in a playlist", playlist, NotVideo,
			"there is no video in it (the first part of its playlist cannot be read)", "gopher://"},
		{"a damaged header", noise(t, mkv, "\x1aE\xdf\xa3", 1<<20), NotVideo, "there is no video in it (" + damaged +
			")", "Invalid data"},
		{"a damaged video", noise(t, sample(t), "mdat", 1<<20), NotVideo, "there is no video in it (" + damaged + ")",
			"format of input stream"},
		{"a program", "exec:sh -c 'echo no camera at rtsp://u:geheim@h/ >&2; exit 4'", EndedEarly,
			"the video ended before its end (after 0 frames, 0s: the program ended: exit status 4)",
			"no camera at rtsp://***@h/"},
	} {
		r, err := Open(t.Context(), Options{URL: c.url, StartTimeout: time.Minute})
		if err == nil {
			_ = r.Close()
			t.Errorf("%s: opened", c.name)
			continue
		}
		problem(t, c.name, err, c.kind, c.text, c.output)
	}
}

// chatter matches text that only ffmpeg writes: components, addresses of memory, ffmpeg's terms.
var chatter = regexp.MustCompile(`0x[0-9a-f]{6}|\[\w+ @|Server returned|HTTP error|method [A-Z]+|whitelist|Error ` +
	`while|Invalid data|No such file or|Input/output|input stream|moov|NAL|EBML`)

func problem(t *testing.T, name string, err error, kind Kind, text, output string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Kind != kind || chatter.MatchString(err.Error()) ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %s: %v, output %q", name, KindOf(err), err, OutputOf(err))
		return
	}
	if got := strings.TrimPrefix(err.Error(), "video: "+e.URL+": "); got != text {
		t.Errorf("%s: %q; want %q; output %q", name, got, text, e.Output)
	}
	if said := OutputOf(fmt.Errorf("x: %w", err)); !strings.Contains(said, output) || strings.Contains(said, "geheim") {
		t.Errorf("%s: output %q; want %q", name, said, output)
	}
}
