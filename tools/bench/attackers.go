package main

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gorilla/websocket"

	"millrace/client"
	"millrace/stream"
)

// assault is a load that a server must withstand, from one process on one processor.
type assault struct {
	Kinds []string      `json:"kinds"` // of attackers
	Addr  string        `json:"addr"`
	Key   string        `json:"key"`   // of the attackers, with the roles infer and manage
	Video string        `json:"video"` // a folder with the chunks of a clip in H.264
	For   time.Duration `json:"for"`
}

// attackers are the kinds of an assault. Each attacker runs until ctx ends, and counts its attacks.
var attackers = map[string]func(ctx context.Context, a *attack){
	"silent":  silentConnections,
	"slow":    slowRequests,
	"body":    announcedBodies,
	"json":    unreadJSON,
	"bomb":    pictureBombs,
	"decoder": manyDecoders,
	"loads":   manyLoads,
	"ping":    pingFloods,
	"tickets": manyTickets,
}

// attack is a running attacker.
type attack struct {
	*assault
	from net.IP       // source address
	done atomic.Int64 // connections, requests or messages begun
}

// run runs the attackers, and returns the count of each.
func (a *assault) run() (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), a.For)
	defer cancel()
	all := map[string]*attack{}
	var wg sync.WaitGroup
	for i, kind := range a.Kinds {
		do := attackers[kind]
		if do == nil {
			return nil, fmt.Errorf("no attackers are called %q", kind)
		}
		k := &attack{assault: a, from: net.IPv4(127, 0, byte(1+i), 1)}
		all[kind] = k
		wg.Go(func() { do(ctx, k) })
	}
	wg.Wait()
	counts := map[string]int64{}
	for kind, k := range all {
		counts[kind] = k.done.Load()
	}
	return counts, nil
}

// dial connects from the n-th of the attack's 250 addresses. 64 successive connections share an address, so that of
// silentOpen each address has 80, less than limits.max_connections_per_address.
func (a *attack) dial(ctx context.Context, n int) (net.Conn, error) {
	from := slices.Clone(a.from.To4())
	from[3] = byte(1 + n/64%250)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: 5 * time.Second}
	c, err := d.DialContext(ctx, "tcp", a.Addr)
	if err == nil {
		a.done.Add(1)
	}
	return c, err
}

// client returns a client that sends the key, with connections from the address of the attack.
func (a *attack) client() *http.Client {
	return &http.Client{Timeout: 30 * time.Second, Transport: keyed{a.Key, &http.Transport{
		MaxIdleConnsPerHost: 64,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: a.from}}).DialContext(ctx, network, addr)
		},
	}}}
}

type keyed struct {
	key string
	rt  http.RoundTripper
}

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+k.key)
	return k.rt.RoundTrip(r)
}

// several runs n loops until ctx ends. A failing loop pauses, since failing attacks do not hurt the server.
func several(ctx context.Context, n int, one func(i int) error) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				if one(i) != nil {
					select {
					case <-ctx.Done():
					case <-time.After(10 * time.Millisecond):
					}
				}
			}
		})
	}
	wg.Wait()
}

func (a *attack) post(ctx context.Context, c *http.Client, path, kind string, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.Addr+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", kind)
	a.done.Add(1)
	reply, err := c.Do(r)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	_, err = io.Copy(io.Discard, reply.Body)
	return err
}

// silentOpen connections send nothing and are open at the same time: as many descriptors in the attacking process as
// in the server. Both processes raise their limits of open files (ulimit -n) to silentOpen + otherDescriptors, for
// other attackers and everything else, as far as allowed; with a lower limit, fewer connections are open.
const (
	silentOpen       = 20000
	otherDescriptors = 2500
)

// silentConnections opens connections without end and sends nothing. The newest silentOpen are open.
func silentConnections(ctx context.Context, a *attack) {
	open := make([]net.Conn, max(1, descriptors(silentOpen+otherDescriptors)-otherDescriptors))
	defer func() {
		for _, c := range open {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	for n := 0; ctx.Err() == nil; n++ {
		c, err := a.dial(ctx, n)
		if err != nil {
			time.Sleep(time.Millisecond)
			continue
		}
		if last := &open[n%len(open)]; *last != nil {
			_ = (*last).Close()
		}
		open[n%len(open)] = c
	}
}

// slowRequests sends 1,000 requests a byte at a time: some their heads, some their bodies.
func slowRequests(ctx context.Context, a *attack) {
	several(ctx, 1000, func(i int) error {
		c, err := a.dial(ctx, i)
		if err != nil {
			return err
		}
		defer c.Close()
		text := fmt.Sprintf("POST /v2/models/motion/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "+
			"%s\r\nContent-Type: image/jpeg\r\nContent-Length: 1000000\r\n\r\n", a.Key)
		if i%2 == 0 {
			_, err = io.WriteString(c, text)
			text = "\xff\xd8\xff"
		}
		for n := 0; err == nil; n++ {
			_, err = io.WriteString(c, text[n%len(text):][:1])
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(100 * time.Millisecond):
			}
		}
		return err
	})
}

// announcedBodies announces 300 bodies of 64 MB, and sends 14 KB of each.
func announcedBodies(ctx context.Context, a *attack) {
	several(ctx, 300, func(i int) error {
		c, err := a.dial(ctx, i)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = fmt.Fprintf(c, "POST /v2/models/motion/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "+
			"%s\r\nContent-Type: image/jpeg\r\nContent-Length: 64000000\r\n\r\n%s", a.Key, make([]byte, 14<<10))
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		defer stop()
		_, err = io.Copy(io.Discard, c)
		return err
	})
}

// unreadJSON asks for 30 large answers in JSON at a time, and reads none.
func unreadJSON(ctx context.Context, a *attack) {
	payload := bytes.Repeat([]byte{'"'}, unreadSize)
	several(ctx, unreadClients, func(i int) error {
		c, err := a.dial(ctx, i)
		if err != nil {
			return err
		}
		defer c.Close()
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		defer stop()
		if _, err = fmt.Fprintf(c, "POST /v2/models/same/infer?outputs=json HTTP/1.1\r\nHost: "+
			"127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Type: application/octet-stream\r\nContent-Length: "+
			"%d\r\n\r\n", a.Key, len(payload)); err != nil {
			return err
		}
		if _, err = c.Write(payload); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
		return nil
	})
}

// pictureBombs sends small pictures with a long decoding time, four at a time.
func pictureBombs(ctx context.Context, a *attack) {
	bombs := [][]byte{flatPNG(4096, 4096, 6), scansJPEG(8192, 100)}
	c := a.client()
	several(ctx, bombClients, func(i int) error {
		return a.post(ctx, c, "/v2/models/motion/infer", fiber.MIMEOctetStream, bombs[i%len(bombs)])
	})
}

// flatPNG returns a PNG of one colour: kind is the colour type of PNG, 6 = RGBA.
//
// Portable Network Graphics Specification, sections 5 and 11.
func flatPNG(w, h int, kind byte) []byte {
	var out bytes.Buffer
	out.WriteString("\x89PNG\r\n\x1a\n")
	chunk := func(name string, data []byte) {
		_ = binary.Write(&out, binary.BigEndian, uint32(len(data)))
		body := append([]byte(name), data...)
		out.Write(body)
		_ = binary.Write(&out, binary.BigEndian, crc32.ChecksumIEEE(body))
	}
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(w)), uint32(h))
	chunk("IHDR", append(head, 8, kind, 0, 0, 0))
	var rows bytes.Buffer
	z := zlib.NewWriter(&rows)
	row := make([]byte, 1+4*w)
	row[0] = 4 // the slowest filter: Paeth
	for range h {
		_, _ = z.Write(row)
	}
	_ = z.Close()
	chunk("IDAT", rows.Bytes())
	chunk("IEND", nil)
	return out.Bytes()
}

// manyDecoders opens 64 streams of video without a frame, and sends 24 other streams as fast as the server accepts.
func manyDecoders(ctx context.Context, a *attack) {
	chunks, err := readChunks(a.Video)
	if err != nil {
		return
	}
	several(ctx, 1, func(int) error {
		c, err := client.NewWith(a.Addr, client.Options{Token: a.Key})
		if err != nil {
			return err
		}
		session, err := c.Session(ctx, client.SessionOptions{})
		if err != nil {
			return err
		}
		defer session.Close()
		o := client.StreamOptions{Codec: "h264", Policy: stream.Policy{Mode: stream.Latest},
			OnReply: func(client.Reply) {}}
		for range 64 {
			a.done.Add(1)
			if _, err := session.Open(ctx, "motion", o); err != nil {
				break // refused
			}
		}
		several(ctx, 24, func(int) error {
			st, err := session.Open(ctx, "motion", o)
			if err != nil {
				return err
			}
			defer st.Close(context.Background())
			for n := 0; err == nil; n++ {
				_, err = st.Send(ctx, client.Frame{Data: chunks[n%len(chunks)], Key: n%len(chunks) == 0})
			}
			return err
		})
		return nil
	})
}

// manyLoads loads a model with ever new parameters, each time for a new endpoint.
func manyLoads(ctx context.Context, a *attack) {
	c := a.client()
	several(ctx, 4, func(int) error {
		return a.post(ctx, c, "/v2/repository/models/same/load", "application/json",
			fmt.Appendf(nil, `{"parameters":{"delay":"%dns"}}`, a.done.Load()+1))
	})
}

// pingFloods sends pings of WebSocket and texts of the protocol without end.
func pingFloods(ctx context.Context, a *attack) {
	several(ctx, 4, func(i int) error {
		d := websocket.Dialer{HandshakeTimeout: 5 * time.Second, NetDialContext: func(ctx context.Context, network,
			addr string) (net.Conn, error) {
			return a.dial(ctx, i)
		}}
		header := http.Header{"Authorization": {"Bearer " + a.Key}}
		url := "ws://" + a.Addr + "/v2/models/motion/stream"
		if i%2 == 1 {
			url, d.Subprotocols = "ws://"+a.Addr+"/v2/stream", []string{"millrace.v1"}
		}
		c, _, err := d.DialContext(ctx, url, header)
		if err != nil {
			return err
		}
		defer c.Close()
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		defer stop()
		go func() {
			for {
				if _, _, err := c.ReadMessage(); err != nil {
					return // the connection was closed
				}
			}
		}()
		for {
			if i%2 == 1 {
				err = c.WriteMessage(websocket.TextMessage, []byte(`{"type":"ping"}`))
			} else {
				err = c.WriteControl(websocket.PingMessage, []byte("0123456789"), time.Now().Add(time.Second))
			}
			if err != nil {
				return err
			}
			a.done.Add(1)
		}
	})
}

// manyTickets asks for tickets and uses none.
func manyTickets(ctx context.Context, a *attack) {
	c := a.client()
	several(ctx, 8, func(int) error { return a.post(ctx, c, "/v2/tickets", "application/json", nil) })
}

// kinds returns all kinds of attackers.
func kinds() []string { return slices.Sorted(maps.Keys(attackers)) }
