package video

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

func TestClassifyURL(t *testing.T) {
	for raw, want := range map[string]string{
		"clip.mp4":                  "file clip.mp4",
		"-i":                        "file -i",
		"./a:b.mp4":                 "file ./a:b.mp4",
		"12:30.mp4":                 "file 12:30.mp4",
		"C:clip.mp4":                "file C:clip.mp4",
		"dir/x:y.mp4":               "file dir/x:y.mp4",
		"/x/y z.mkv":                "file /x/y z.mkv",
		"file:a:b":                  "file a:b",
		"FILE:-x":                   "file -x",
		"file:///x/y%20z.mkv":       "file /x/y z.mkv",
		"file://localhost/x":        "file /x",
		"/dev/video0":               "v4l2 /dev/video0",
		"v4l2:/dev/video2":          "v4l2 /dev/video2",
		"v4l2:///dev/video2":        "v4l2 /dev/video2",
		"exec:rpicam-vid -t 0 -o -": "exec rpicam-vid -t 0 -o -",
		"http://h/x?a=b#c":          "http http://h/x?a=b",
		"HTTPS://u:p@h:8443/x":      "https https://u:p@h:8443/x",
		"rtsp://[fe80::1]:554/s":    "rtsp rtsp://[fe80::1]:554/s",
		"rtsps://h/s":               "rtsps rtsps://h/s",
		"rtmp://h/live":             "rtmp rtmp://h/live",
		"rtmps://h/live":            "rtmps rtmps://h/live",
	} {
		scheme, target, err := parseSource(raw)
		if got := scheme + " " + target; err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", raw, got, err, want)
		}
	}
	for _, raw := range []string{
		"", "  ", "x\x00y", "x\ny", "concat:a|b", "pipe:0", "data:,x", "subfile,,start,0,end,9,,:x", "ftp://h/x",
		"gopher://h",
		"http:h/x", "http://", "http:///x", "http://h h/", "http://a,b/", "http://u:geheim@h:port/",
		"rtsp://u:ge%zzheim@h/",
		"file:", "file://", "file://host/x", "file:///", "file:///%00", "file:///%zz", "v4l2:", "v4l2:/etc/passwd",
		"exec:", "exec:  ",
		`http://127.0.0.1\@example.com/`,
		"rtsp://admin:12#34heim@h/", "rtsp://admin:geheim/34@h/", "http://admin:geheim?34@h/x", "https://h/@geheim/x",
		"http://h/x@127.0.0.1/", "http://h?@127.0.0.1/", "http://h/?mail=geheim@h", "rtsp://admin:ge heim@h/",
		`rtsp://admin:ge"heim@h/`,
	} {
		scheme, err := ClassifyURL(raw)
		if err == nil {
			t.Errorf("%q is %q; want an error", raw, scheme)
		} else if strings.Contains(err.Error(), "heim") {
			t.Errorf("%q: the error contains the password: %v", raw, err)
		}
	}
}

func TestEverySchemeHasItsProtocols(t *testing.T) {
	for _, s := range []string{SchemeFile, SchemeHTTP, SchemeHTTPS, SchemeRTSP, SchemeRTSPS, SchemeRTMP, SchemeRTMPS,
		SchemeV4L2, SchemeExec} {
		list := Protocols(s)
		if len(list) == 0 {
			t.Errorf("%s has none", s)
		}
		for _, p := range list {
			if isNetwork(s) && (p == "file" || p == "pipe" || p == "data" || p == "concat") {
				t.Errorf("%s allows %s", s, p)
			}
		}
	}
	if Protocols("gopher") != nil {
		t.Error("an unknown scheme has protocols")
	}
}

// ffmpeg dials the same host that parseSource reads.
func TestHostOfATarget(t *testing.T) {
	for raw, want := range map[string]string{
		"http://u:p@h.example:80/x": "h.example", "rtsp://[::1]:554/": "::1", "http://a@b@c/": "c",
	} {
		_, target, err := parseSource(raw)
		if err != nil {
			t.Fatal(err)
		}
		if u, err := url.Parse(target); err != nil || u.Hostname() != want {
			t.Errorf("the host of %q is %q, %v; want %q", raw, u.Hostname(), err, want)
		}
	}
}

func TestIsPrivateAddr(t *testing.T) {
	for _, a := range []string{
		"127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "0.1.2.3", "::",
		"10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "fe80::1", "fe80::1%eth0",
		"fd00::1", "fc00::1",
		"100.64.0.1", "100.127.255.255", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::7f00:1", "64:ff9b::7f00:1",
		"2002:7f00:1::",
		"224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1", "198.18.0.1", "fec0::1", "2001::1",
		"168.63.129.16",
	} {
		if !IsPrivateAddr(netip.MustParseAddr(a)) {
			t.Errorf("%s is public", a)
		}
	}
	if !IsPrivateAddr(netip.Addr{}) {
		t.Error("no address is public")
	}
	for _, a := range []string{"8.8.8.8", "172.32.0.1", "172.15.0.1", "100.63.0.1", "100.128.0.1", "192.169.0.1",
		"2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::"} {
		if IsPrivateAddr(netip.MustParseAddr(a)) {
			t.Errorf("%s is private", a)
		}
	}
}

// Addresses of this machine are refused in every form. All addresses are refused when this machine's addresses are
// unknown.
func TestOwnAddressesAreNotPublic(t *testing.T) {
	defer func(f func() ([]net.Addr, error)) { interfaceAddrs = f }(interfaceAddrs)
	interfaceAddrs = func() ([]net.Addr, error) {
		return []net.Addr{
			&net.IPNet{IP: net.IPv4(8, 8, 8, 8), Mask: net.CIDRMask(24, 32)}, // in 16 bytes
			&net.IPNet{IP: net.ParseIP("2606:4700::1111"), Mask: net.CIDRMask(64, 128)},
		}, nil
	}
	for a, want := range map[string]string{
		"8.8.8.8": "this machine", "::ffff:8.8.8.8": "this machine", "64:ff9b::808:808": "this machine",
		"2002:808:808::1": "this machine",
		"2606:4700::1111": "this machine", "2606:4700::1111%eth0": "this machine", "10.0.0.1": "private",
		"8.8.8.9": "", "2606:4700::1112": "",
	} {
		if err := CheckPublic(netip.MustParseAddr(a)); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", a, err, want)
		}
	}
	interfaceAddrs = func() ([]net.Addr, error) { return nil, errors.New("no netlink") }
	if err := CheckPublic(netip.MustParseAddr("8.8.8.9")); err == nil || !strings.Contains(err.Error(), "AF_NETLINK") {
		t.Errorf("without the addresses of the machine: %v", err)
	}
}

// The addresses of this machine can be read here.
func TestInterfaceAddrs(t *testing.T) {
	if err := CheckPublic(netip.MustParseAddr("8.8.8.8")); err != nil {
		t.Error(err)
	}
}

func BenchmarkCheckPublic(b *testing.B) {
	for b.Loop() {
		_ = CheckPublic(netip.MustParseAddr("8.8.8.8"))
	}
}

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"rtsp://admin:geheim@10.0.0.1/s":                     "rtsp://***@10.0.0.1/s",
		"rtsp://admin:ge@heim@10.0.0.1/s":                    "rtsp://***@10.0.0.1/s",
		"http://h/x?token=geheim&w=3":                        "http://h/x?token=***&w=3",
		"http://h/x?w=3&X-Amz-Signature=geheim":              "http://h/x?w=3&X-Amz-Signature=***",
		"http://h/x?API_KEY=geheim#f":                        "http://h/x?API_KEY=***#f",
		"a http://u@h/ b rtmp://x:y@h/z c":                   "a http://***@h/ b rtmp://***@h/z c",
		"'http://u:p@h/x?password=geheim': Connection reset": "'http://***@h/x?password=***': Connection reset",
		"Authorization: Basic geheim==":                      "Authorization: ***",
		"plain text, 3 @ 4: fine":                            "plain text, 3 @ 4: fine",
		"open rtsp://admin:12#34geheim@h/x failed":           "open rtsp://***@h/x failed",
		"open http://admin:12/geheim?34@h/x failed":          "open http://***@h/x failed",
		"rtsp://admin:12#34geheim@h/x":                       "rtsp://***",
		"rtsp://admin:ge heim@h/x":                           "rtsp://***",
		`rtsp://admin:ge"heim@h/x`:                           "rtsp://***",
		"http://h/a@b":                                       "http://***",
		"http://h/x#access_token=geheim":                     "http://h/x#access_token=***",
		"exec:cam --password geheim -key=geheim -t 0 -o -":   "exec:cam --password *** -key=*** -t 0 -o -",
		`exec:cam --header "X-Token: geheim" -o -`:           `exec:cam --header *** -o -`,
	} {
		if isAddress := strings.HasPrefix(in, "http") || strings.HasPrefix(in, "rtsp"); isAddress && (Redacted(in) ||
			Redacted(want) != (in != want)) {
			t.Errorf("%q, %q: redacted %v, %v", in, want, Redacted(in), Redacted(want))
		}
		if got := Redact(in); got != want {
			t.Errorf("Redact(%q) = %q; want %q", in, got, want)
		}
	}
	red := newRedactor("rtsp://admin:ge%40heim@h/s?auth=streng")
	if got := red.text("user admin password ge@heim or ge%40heim, streng"); got !=
		"user admin password *** or ***, ***" {
		t.Errorf("got %q", got)
	}
}

func TestSplitCommand(t *testing.T) {
	for in, want := range map[string][]string{
		"a  b\tc":            {"a", "b", "c"},
		`a 'b c' "d 'e'" ''`: {"a", "b c", "d 'e'", ""},
		`x$HOME;y|z *`:       {"x$HOME;y|z", "*"},
		`a'b'c`:              {"abc"},
		`a\b`:                {`a\b`},
	} {
		if got, err := splitCommand(in); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	if _, err := splitCommand("a 'b"); err == nil {
		t.Error("an open quote gave no error")
	}
}

// Whatever the source, its error and ffmpeg's address agree with url.Parse about the host, and no secret is told.
func FuzzParseSource(f *testing.F) {
	for _, s := range []string{"clip.mp4", "http://u:geheim@h/x?token=geheim", "rtsp://[::1]:554/", "file:///x",
		"exec:a b", "v4l2:/dev/video0", `http://a\@b/`, "http://a@b@c:1/?@d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		scheme, target, err := parseSource(raw)
		if err != nil {
			return
		}
		if strings.ContainsAny(target, "\x00\r\n") || target == "" {
			t.Errorf("%q: target %q", raw, target)
		}
		if protocols[scheme] == nil {
			t.Errorf("%q: scheme %q", raw, scheme)
		}
		if isNetwork(scheme) {
			u, err := url.Parse(target)
			if err != nil || u.Scheme != scheme || u.Hostname() == "" {
				t.Errorf("%q: %q, %v", raw, target, err)
			}
			if _, again, err := parseSource(target); err != nil || again != target {
				t.Errorf("%q: %q is read again as %q, %v", raw, target, again, err)
			}
			if u != nil && u.User != nil {
				if p, ok := u.User.Password(); ok && len(p) > 8 && strings.Contains(newSource(raw).url, p) &&
					!strings.Contains(u.Host+u.Path, p) {
					t.Errorf("%q: the redacted form %q contains the password", raw, newSource(raw).url)
				}
			}
		}
		_, _ = splitCommand(target)
	})
}
