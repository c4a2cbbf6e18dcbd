package conn

import (
	"bufio"
	"net"
	"net/http"
	"testing"
)

// A connection without room or without a goroutine is refused, and both refusals are counted.
func TestStartRefuses(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"no room":      func(r *rig) { r.Close() },
		"no goroutine": func(r *rig) { r.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			prepare(r)
			near, far := net.Pipe()
			go r.Start(r.New(far, r.mem, r.form), r.echo, Client{}, nil, nil, nil)
			res, err := http.ReadResponse(bufio.NewReader(near), nil)
			if err != nil || res.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("%v, %v", res, err)
			}
			if st := r.Stats(); st.Ends[EndRefused] != 1 || st.Conns != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}
