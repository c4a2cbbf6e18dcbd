package video

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// answers is a name server with changing answers: the n-th look-up of a name returns the addresses of answers[n], and
// look-ups beyond the end return the last addresses.
type answers struct {
	mu    sync.Mutex
	asked map[string]int
	list  [][4]byte
}

// resolveBy makes this program use a local name server on 127.0.0.1 until the test ends.
func resolveBy(t *testing.T, list ...[4]byte) *answers {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &answers{asked: map[string]int{}, list: list}
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			if reply := a.reply(t, b[:n]); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	})
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		_ = conn.Close()
		wg.Wait()
	})
	return a
}

func (a *answers) reply(t *testing.T, query []byte) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		t.Errorf("a query of %d bytes: %v", len(query), err)
		return nil
	}
	q := m.Questions[0]
	out := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true},
		Questions: m.Questions}
	if q.Type == dnsmessage.TypeA {
		a.mu.Lock()
		n := a.asked[q.Name.String()]
		a.asked[q.Name.String()]++
		a.mu.Unlock()
		out.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 0},
			Body:   &dnsmessage.AResource{A: a.list[min(n, len(a.list)-1)]},
		}}
	}
	reply, err := out.Pack()
	if err != nil {
		t.Error(err)
	}
	return reply
}

func (a *answers) lookUps(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[name]
}

// A name may have another address at each look-up: each connection goes to the very address that was checked.
func TestNamesThatChangeTheirAddress(t *testing.T) {
	private, connections := privateServer(t)
	_, port, err := net.SplitHostPort(private)
	if err != nil {
		t.Fatal(err)
	}
	allowed, hidden := [4]byte{127, 0, 0, 1}, [4]byte{127, 0, 0, 2}
	// The same port of the allowed address redirects to the same name, which then has another address.
	ln, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Skip("the port is taken: ", err)
	}
	var asked atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked.Add(1)
		switch q.URL.Path {
		case "/redirect.ts":
			w.Header().Set("Connection", "close")
			http.Redirect(w, q, "http://camera.test:"+port+"/x.ts", http.StatusFound)
		case "/list.m3u8":
			w.Header().Set("Connection", "close")
			_, _ = io.WriteString(w, "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nx.ts\n#EXT-X-ENDLIST\n")
		}
	}))
	_ = s.Listener.Close()
	s.Listener = ln
	s.Start()
	defer s.Close()

	for _, path := range []string{"/redirect.ts", "/list.m3u8"} {
		names := resolveBy(t, allowed, hidden)
		asked.Store(0)
		refuse(t, Options{URL: "http://camera.test:" + port + path, Allow: allowPublic}, Forbidden, errPrivate.Error())
		if n := names.lookUps("camera.test."); n < 2 || asked.Load() == 0 {
			t.Errorf("%s: %d look-ups, %d requests: the name has not changed its address", path, n, asked.Load())
		}
	}
	resolveBy(t, hidden, allowed)
	for _, scheme := range []string{"http", "https", "rtsp", "rtsps"} {
		refuse(t, Options{URL: scheme + "://" + scheme + ".test:" + port + "/x", Allow: allowPublic}, Forbidden,
			errPrivate.Error())
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections to an address that is not allowed", n)
	}
	// Without Allow the connections succeed, so the test can fail.
	resolveBy(t, allowed, hidden)
	if n := len(all(t, open(t, Options{URL: "http://camera.test:" + port + "/redirect.ts"}))); n != 10 ||
		connections.Load() == 0 {
		t.Errorf("%d frames of 10, %d connections", n, connections.Load())
	}
}

// An IPv6 address that stands for a private IPv4 address is private.
func FuzzPrivateAddr(f *testing.F) {
	for _, a := range []string{"127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "100.64.0.1", "0.0.0.0",
		"8.8.8.8"} {
		b := netip.MustParseAddr(a).As4()
		f.Add(b[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != 4 {
			return
		}
		v4 := netip.AddrFrom4([4]byte(b))
		if !IsPrivateAddr(v4) {
			return
		}
		for _, prefix := range [][]byte{{10: 0xff, 0xff}, {8: 0xff, 0xff, 0, 0}, {11: 0},
			{0, 0x64, 0xff, 0x9b, 11: 0}} {
			a := netip.AddrFrom16([16]byte(append(prefix, b...)))
			if !IsPrivateAddr(a) {
				t.Errorf("%v stands for %v, and is public", a, v4)
			}
		}
		if a := netip.AddrFrom16([16]byte{0x20, 0x02, b[0], b[1], b[2], b[3], 15: 1}); !IsPrivateAddr(a) {
			t.Errorf("%v stands for %v, and is public", a, v4)
		}
	})
}
