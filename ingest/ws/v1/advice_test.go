package v1

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/wire"
	"millrace/stream"
)

// A client with dropped frames receives the rate of answers at the due time, and a size sufficient for the model,
// once each. Statistics are sent at the same times, but less often.
func TestAdvice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		v, _ := r.hello()
		v.say(`{"type":"open","sid":1,"outputs":"none"}`)
		find[*wire.Opened](v)
		begin, seq := time.Now(), uint64(0)
		for _, c := range []struct {
			at       time.Duration
			n        int  // frames received at that time; all but the last are dropped
			answered bool // after 100 ms
			want     string
		}{
			{0, 5, true, ""},
			// the drops are written a second after those of the round before; no picture is wanted
			{time.Second, 5, true, `advise {"sid":1,"fps":1}`},
			{1200 * time.Millisecond, 5, true, ``},
			{2900 * time.Millisecond, 1, true, `advise {"sid":1,"fps":1.5,"width":44,"height":24}; ` +
				`stats {"sid":1,"counts":{"received":16,"accepted":16,"results":4,"drops":12,"errors":0},"fps":1.5,` +
				`"age_us":100000}`},
			{4 * time.Second, 1, true, ``}, // less than was advised, and nothing is dropped
			{6 * time.Second, 3, false, `advise {"sid":1,"fps":0.1}; stats ` +
				`{"sid":1,"counts":{"received":19,"accepted":19,"results":5,"drops":13,"errors":0}}`},
		} {
			time.Sleep(time.Until(begin.Add(c.at)))
			for range c.n {
				seq++
				v.frames(1, seq)
			}
			if c.answered {
				time.Sleep(100 * time.Millisecond)
				width, height := 128, 72
				if c.at == 2900*time.Millisecond {
					width, height = 0, 0 // an ending without a picture; says nothing about other frames
				}
				r.answer(0, width, height)
			}
			var out []wire.Message
			for _, m := range v.all() {
				switch m.(type) {
				case *wire.Advise, *wire.Stats:
					out = append(out, m)
				}
			}
			got := strings.Replace(describe(out), `,"waiting":1`, "", 1) // the last of the frames may have come, or not
			if got != c.want {
				t.Errorf("at %v\ngot  %s\nwant %s", c.at, got, c.want)
			}
			if c.at == time.Second {
				r.model.Image = &stream.ImageSpec{Width: 32, Height: 24} // as after a swap
			}
		}
		r.stop()
	})
}

// Drops for lack of compute lead to advice from a fifth of the frames on; other drops do not.
func TestAdviceByDrops(t *testing.T) {
	for _, c := range []struct {
		why     stream.Reason
		drops   int
		results int
		advised bool
	}{
		{stream.Superseded, 2, 2, true}, {stream.Overtaken, 2, 2, true}, {stream.Stale, 2, 2, true},
		{stream.Stale, 1, 4, true}, {stream.Stale, 1, 5, false},
		{stream.RateLimit, 2, 2, false}, {stream.Flushed, 2, 2, false}, {stream.Memory, 2, 2, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			v, _ := r.hello()
			v.say(`{"type":"open","sid":1,"outputs":"none","policy":{"mode":"every"}}`)
			v.all()
			for seq := range c.drops + c.results {
				v.frames(1, uint64(seq))
				if req := r.take(0); seq < c.drops {
					req.Drop(c.why)
					req.Unbind()
				} else {
					if seq == c.drops+c.results-1 {
						time.Sleep(time.Second)
					}
					finish(req)
				}
			}
			advised := false
			for _, m := range v.all() {
				if a, ok := m.(*wire.Advise); ok {
					advised = true
					if a.FPS != float64(c.results) && c.why != stream.Stale {
						t.Errorf("%+v", a)
					}
				}
			}
			if advised != c.advised {
				t.Errorf("%d %s of %d: advised %v", c.drops, c.why, c.drops+c.results, advised)
			}
			r.stop()
		})
	}
}

// A client that sends parts of its frames is not advised to send smaller parts.
func TestNoAdviceOfSizeForRegions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.model.Image = &stream.ImageSpec{Width: 32, Height: 24}
		v, _ := r.hello()
		v.say(`{"type":"open","sid":1,"outputs":"none"}`)
		find[*wire.Opened](v)
		h := wire.Header{SID: 1}
		h.Ext.HasROI, h.Ext.ROI = true, [4]uint16{0, 0, 8, 8}
		v.frame(h) // no picture: an error, and a part all the same
		for seq := range uint64(8) {
			v.frames(1, 1+seq)
			if seq%4 == 3 {
				r.answer(0, 128, 72)
				time.Sleep(time.Second)
			}
		}
		if a := find[*wire.Advise](v); a.FPS != 1 || a.Width != 0 {
			t.Errorf("%+v", a)
		}
		r.stop()
	})
}

func TestAdviseFPS(t *testing.T) {
	for _, c := range []struct {
		results int
		drops   uint64
		advised float64
		rate    float64
		want    float64
	}{
		{0, 0, 0, 0, 0},
		{100, 0, 0, 33, 0},     // nothing is dropped
		{4, 1, 0, 12.34, 12.3}, // a fifth is
		{5, 1, 0, 12.34, 0},    // less is
		{0, 9, 20, 0, 0.1},
		{100, 1, 10, 30, 10},
		{100, 0, 10, 7.9, 10}, // the client sends less than advised
		{100, 0, 10, 8, 12.5},
		{100, 0, 12.5, 12.5, 15.6},
	} {
		p := rateAdvisor{results: c.results, drops: c.drops, advisedFPS: c.advised}
		if got := p.adviseFPS(c.rate); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestSmallerSize(t *testing.T) {
	image := &stream.ImageSpec{Width: 32, Height: 24}
	for _, c := range []struct {
		image *stream.ImageSpec
		sent  [2]int
		want  [2]int
	}{
		{nil, [2]int{1920, 1080}, [2]int{}},
		{image, [2]int{64, 48}, [2]int{32, 24}},
		{image, [2]int{63, 48}, [2]int{}},
		{image, [2]int{64, 47}, [2]int{}},
		{image, [2]int{128, 72}, [2]int{44, 24}}, // 42.7
		{image, [2]int{72, 128}, [2]int{32, 58}}, // 56.9
		{image, [2]int{}, [2]int{}},
	} {
		if w, h := smallerSize(c.sent, c.image); [2]int{w, h} != c.want {
			t.Errorf("%v: %d x %d, want %v", c.sent, w, h, c.want)
		}
	}
}
