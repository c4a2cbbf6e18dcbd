package accept

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// serve accepts connections. One that has sent a byte has spoken, and is answered with it
// until its end; one that has ended is closed.
func serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			b := make([]byte, 1)
			for {
				if _, err := c.Read(b); err != nil {
					return
				}
				MarkRequestSent(c)
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		}()
	}
}

// ask sends a byte and reports whether it is answered.
func ask(c net.Conn) bool {
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	b := []byte{'x'}
	if _, err := c.Write(b); err != nil {
		return false
	}
	_, err := io.ReadFull(c, b)
	return err == nil
}

// answered dials until a connection is answered, and returns it.
func answered(t *testing.T, addr string) net.Conn {
	t.Helper()
	for limit := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
		c := dial(t, addr)
		if ask(c) {
			return c
		}
		_ = c.Close()
		if time.Now().After(limit) {
			t.Fatal("no connection is answered")
		}
	}
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// At the bound a silent connection is closed for a new one, and one that has spoken never.
func TestSilentConnectionsGiveWay(t *testing.T) {
	for _, limit := range []*Limit{{Max: 8}, {PerAddress: 8}} {
		limit.Log = slog.New(slog.DiscardHandler)
		l, err := limit.Listen("http", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go serve(l)
		addr := l.Addr().String()
		var silent, good []net.Conn
		for range 7 {
			silent = append(silent, dial(t, addr))
		}
		for range 8 {
			good = append(good, answered(t, addr))
		}
		for i, c := range silent {
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			if _, err := c.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
				t.Errorf("silent connection %d: %v, want its end", i, err)
			}
		}
		// All places are taken by connections that have spoken.
		c := dial(t, addr)
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Errorf("one too many: %v, want its end", err)
		}
		for i, c := range good {
			if !ask(c) {
				t.Errorf("good connection %d was closed", i)
			}
		}
		st := limit.Stats()["http"]
		if refused := st.Refused + st.RefusedAddress; st.Open != 8 || st.Shed != 7 || refused == 0 ||
			(limit.Max == 0) != (st.Refused == 0) {
			t.Errorf("%+v", st)
		}
	}
}

// A connection that was silent for less than a second is not closed for another.
func TestShed(t *testing.T) {
	limit := &Limit{}
	l, err := limit.Listen("http", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial(t, l.Addr().String())
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	since := c.(*conn).since
	limit.mu.Lock()
	defer limit.mu.Unlock()
	if limit.shed(&limit.silent, since.Add(silence-1)) {
		t.Error("a new connection was closed")
	}
	if !limit.shed(&limit.silent, since.Add(silence)) || limit.shed(&limit.silent, since.Add(time.Hour)) {
		t.Error("the silent connection was not closed once")
	}
	if limit.open != 0 {
		t.Errorf("%d open", limit.open)
	}
}

// An IPv6 client counts by its /64, one that connects by IPv4 to an IPv6 socket by its IPv4
// address, and trusted addresses have no bound.
func TestAddresses(t *testing.T) {
	limit := &Limit{PerAddress: 1, Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("fd00::/16")}}
	for text, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::",
		"fe80::1%eth0": "fe80::",
		"10.1.2.3":     "", "::ffff:10.1.2.3": "", "fd00::7": "", "fd00::7%lo": "",
	} {
		a := limit.addressOf(net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(text), 1)))
		switch {
		case a == nil && want != "", a != nil && a.of.Addr().String() != want:
			t.Errorf("%s: %+v, want %q", text, a, want)
		}
	}
	if limit.PerAddress = 0; limit.addressOf(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 7)}) != nil {
		t.Error("without a bound addresses are counted")
	}
}

// A listener's line in the log appears once a second at most.
func TestLogOfRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		l := &listener{name: "http", limit: &Limit{Log: slog.New(slog.NewTextHandler(&said, nil))}}
		for range 2500 {
			l.warn("refused")
			time.Sleep(time.Millisecond)
		}
		if n := strings.Count(said.String(), "refused"); n != 3 {
			t.Errorf("%d lines in 2.5 s", n)
		}
	})
}

// Bound leaves files for other uses.
func TestBound(t *testing.T) {
	if n, files := Bound(1); n != 1 || files == 0 {
		t.Errorf("%d of %d", n, files)
	}
	if n, files := Bound(1 << 30); uint64(n) >= files || uint64(n) < files/4*3 {
		t.Errorf("%d connections with %d files", n, files)
	}
}

// child is the variable with which the tests run themselves as a server.
const child = "ACCEPT_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 64, Max: 64}); err != nil {
		panic(err)
	}
	limit := &Limit{Log: slog.New(slog.DiscardHandler)}
	l, err := limit.Listen("http", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		st := limit.Stats()["http"]
		fmt.Println(st.Open, st.Shed > 0, st.RefusedNoFile > 0, st.Failed > 0)
		os.Exit(0)
	}()
	serve(l)
}

// A process without free descriptors closes silent connections and answers good ones. When
// all have spoken it closes new ones at once, and accepts again when one has ended.
func TestNoFreeDescriptor(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var addr string
	if _, err := fmt.Fscan(out, &addr); err != nil {
		t.Fatal(err)
	}
	for range 500 {
		dial(t, addr)
	}
	var good []net.Conn
	for range 40 {
		good = append(good, answered(t, addr))
	}
	for refused := false; !refused; { // until no descriptor is left
		c := dial(t, addr)
		if refused = !ask(c); !refused {
			good = append(good, c)
		}
		if len(good) > 64 {
			t.Fatalf("%d connections with 64 descriptors", len(good))
		}
	}
	for i, c := range good {
		if !ask(c) {
			t.Errorf("good connection %d was closed", i)
		}
	}
	_ = good[0].Close()
	answered(t, addr)
	_ = in.Close()
	var open int
	var shed, refused, failed bool
	if _, err := fmt.Fscan(out, &open, &shed, &refused, &failed); err != nil || open < 40 || !shed || !refused ||
		!failed {
		t.Errorf("%d open, shed %v, refused %v, failed %v: %v", open, shed, refused, failed, err)
	}
}

// A connection after MarkActive is the last to be closed, and not within a second; after MarkRequestSent it never is.
func TestHeard(t *testing.T) {
	for _, limit := range []*Limit{{}, {PerAddress: 3}} {
		l, err := limit.Listen("http", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var of []*connInfo
		for range 3 {
			dial(t, l.Addr().String())
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			of = append(of, c.(*conn).connInfo)
			of[len(of)-1].since = time.Now().Add(-time.Hour)
		}
		list := &limit.silent
		if limit.PerAddress > 0 {
			list = &of[0].address.silent
		}
		heard := &conn{connInfo: of[0]}
		before := time.Now()
		MarkActive(heard)
		MarkRequestSent(&conn{connInfo: of[1]})
		MarkActive(&conn{connInfo: of[1]}) // which changes nothing
		limit.mu.Lock()
		if list.Front().Value != of[2] || !limit.shed(list, before) {
			t.Error("the connection that is idle was not closed first")
		}
		if limit.shed(list, before.Add(silence-1)) {
			t.Error("the connection that was heard was closed within a second")
		}
		if !limit.shed(list, time.Now().Add(silence)) || limit.shed(list, before.Add(2*time.Hour)) {
			t.Error("the connection that was heard was not closed after a second, or the one that has spoken was")
		}
		limit.mu.Unlock()
		MarkActive(heard) // which has ended
		if limit.Silent() != 0 || limit.open != 1 {
			t.Errorf("%d silent, %d open", limit.Silent(), limit.open)
		}
	}
}

// A connection that is busy is not closed for another one, and afterwards as one after MarkActive; never if it has
// spoken meanwhile or has ended.
func TestBusy(t *testing.T) {
	limit := &Limit{PerAddress: 4}
	l, err := limit.Listen("http", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := func() net.Conn {
		dial(t, l.Addr().String())
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	silent := func(want int) {
		t.Helper()
		if n := limit.Silent(); n != want {
			t.Errorf("%d connections give way, want %d", n, want)
		}
	}
	first, spoken, ended := accepted(), accepted(), accepted()
	defer first.Close()
	defer spoken.Close()
	var done []func()
	for _, c := range []net.Conn{first, spoken, ended} {
		done = append(done, Busy(c))
	}
	MarkActive(first)
	silent(0)
	MarkRequestSent(spoken)
	ended.Close()
	Busy(spoken)()
	idle := accepted()
	defer idle.Close()
	for _, f := range done {
		f()
	}
	silent(2)
	limit.mu.Lock()
	list := &first.(*conn).address.silent
	if list.Len() != 2 || list.Front().Value != idle.(*conn).connInfo || list.Back().Value != first.(*conn).connInfo {
		t.Error("the connection that was busy is not the last to give way")
	}
	limit.mu.Unlock()
}

// A client that has many /64 of IPv6 in one /48 has four times the connections of one address, and gives up its own
// silent ones first.
func TestSites(t *testing.T) {
	limit := &Limit{PerAddress: 2, Log: slog.New(slog.DiscardHandler)}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limit.bound("http", "", inner).(*listener)
	defer l.Close()
	admit := func(from string) net.Conn {
		t.Helper()
		dial(t, inner.Addr().String())
		c, err := inner.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return l.admit(c, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 1)))
	}
	var open []net.Conn
	for i := range 8 {
		c := admit(fmt.Sprintf("2001:db8:1:%d::1", i)) // the /64 of the first is the /48 with zeros
		if c == nil {
			t.Fatalf("connection %d was refused", i)
		}
		open = append(open, c)
	}
	if admit("2001:db8:1:99::1") != nil {
		t.Error("the ninth of a /48 was admitted")
	}
	if c := admit("2001:db8:2::1"); c == nil {
		t.Error("another /48 was refused")
	} else {
		_ = c.Close()
	}
	limit.mu.Lock()
	for _, c := range open {
		c.(*conn).since = time.Now().Add(-time.Hour)
	}
	limit.mu.Unlock()
	MarkRequestSent(open[0])
	if admit("2001:db8:1:99::1") == nil {
		t.Error("no silent connection of the /48 gave way")
	}
	if open[0].(*conn).gone || !open[1].(*conn).gone {
		t.Error("another than the oldest silent one gave way")
	}
	if st := limit.Stats()["http"]; st.Open != 8 || st.Shed != 1 || st.RefusedAddress != 1 {
		t.Errorf("%+v", st)
	}
	for _, c := range open {
		_ = c.Close()
	}
	if len(limit.addresses) != 2 { // of the last connection
		t.Errorf("%d addresses are kept", len(limit.addresses))
	}
}
