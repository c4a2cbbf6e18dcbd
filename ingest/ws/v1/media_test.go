package v1

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/codec"
	"millrace/internal/wire"
	"millrace/stream"
)

func roi(h wire.Header, x, y, width, height uint16) wire.Header {
	h.Ext.HasROI, h.Ext.ROI = true, [4]uint16{x, y, width, height}
	return h
}

// A frame not allowed to the client ends as an error with a reason; so does each frame after the last.
func TestFramesOutOfTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		v, _ := r.hello()
		v.say(`{"type":"open","sid":1,"outputs":"none","policy":{"mode":"every","window":2}}`)
		v.say(`{"type":"open","sid":2,"outputs":"none","policy":{"window":2}}`)
		v.all()
		v.frames(9, 1)
		v.expect("error not_found sid 9/1")
		v.frames(1, 5, 5, 4)
		v.expect("error invalid_argument seq 1/5", "error invalid_argument seq 1/4") // these count, too
		v.frames(1, 6, 7)
		v.expect("error flow_control credit 1/7") // of 4
		r.answer(0, 0, 0)
		r.answer(0, 0, 0)
		v.expect("result 1/5 ack 4 of 6", "result 1/6 ack 5 of 7")
		v.frames(2, 1, 2) // latest mode permits more
		v.expect("drop 2 [[1 1]] superseded ack 1 of 3")
		v.frames(2, 3)
		v.expect("drop 2 [[2 2]] superseded ack 2 of 4")
		v.frame(wire.Header{SID: 1, Seq: 8, Flags: wire.FlagEnd})
		v.frames(1, 9)
		v.expect("error conflict flags 1/9")
		r.answer(0, 0, 0)
		v.expect("result 1/8 ack 7 of 9", "closed 1 client {7 3 3 0 4}")
		r.stop()
	})
}

// The fields of a frame's header reach the model.
func TestHeaderOfAFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		v, _ := r.hello()
		v.say(`{"type":"open","sid":1,"policy":{"mode":"every","window":9},"params":{"a":1}}`)
		v.all()
		v.frames(1, 1)
		v.frame(wire.Header{SID: 1, Seq: 2, CaptureUS: 77, Flags: wire.FlagMust, DeadlineMS: 250})
		v.frame(wire.Header{SID: 1, Seq: 3, Flags: wire.FlagDiscontinuity})
		v.say(`{"type":"update","sid":1,"params":{"b":2}}`)
		v.frames(1, 4)
		v.frame(wire.Header{SID: 1, Seq: 5, Ext: wire.Ext{Params: []byte(`{"c":3}`)}})
		for _, want := range []struct {
			capture             int64
			must, discontinuity bool
			deadline            time.Duration
			params              string
		}{
			{params: "map[a:1]"}, {77, true, false, 250 * time.Millisecond, "map[a:1]"},
			{discontinuity: true, params: "map[a:1]"}, {params: "map[b:2]"}, {params: "map[c:3]"},
		} {
			req := r.take(0)
			params := req.Params
			if params == nil {
				params = req.Stream.Options().Params
			}
			if req.CaptureUS != want.capture || req.Must != want.must || req.Discontinuity != want.discontinuity ||
				req.Frame.Deadline != want.deadline || fmt.Sprint(params) != want.params {
				t.Errorf("frame %d: %+v, params %v, want %+v", req.Seq, req.Frame, params, want)
			}
			finish(req)
		}
		v.all()
		v.frame(wire.Header{SID: 1, Seq: 6, Ext: wire.Ext{Params: []byte(`{"c":[]}`)}})
		v.expect("error invalid_argument params.c 1/6")
		r.stop()
	})
}

// Pictures without a declared codec are recognised; declared sizes apply to raw frames alone; a part of a frame is a
// part of a picture.
func TestPicturesOfClients(t *testing.T) {
	jpeg, err := codec.EncodeJPEG(nil, make([]byte, 16*16*3), 16, 16, 80)
	if err != nil {
		t.Fatal(err)
	}
	image := &stream.ImageSpec{Width: 4, Height: 4}
	ok := func(codec stream.Codec, width, height int) string {
		return fmt.Sprintf("%s %d x %d", codec, width, height)
	}
	for name, c := range map[string]struct {
		open  string
		image *stream.ImageSpec
		h     wire.Header
		data  []byte
		want  string // codec and size of the model's frame, or the error
	}{
		"recognised":               {``, image, wire.Header{}, jpeg, ok(stream.JPEG, 0, 0)},
		"said to be opaque":        {`,"codec":"opaque"`, image, wire.Header{}, jpeg, "error unsupported codec"},
		"of no model for pictures": {``, nil, wire.Header{}, jpeg, ok(stream.Opaque, 0, 0)},
		"with a size": {``, image, wire.Header{Codec: wire.JPEG, Width: 16, Height: 16}, jpeg,
			ok(stream.JPEG, 0, 0)},
		"raw": {`,"width":2,"height":1`, image, wire.Header{Codec: wire.RGB24},
			make([]byte, 6), ok(stream.RGB24, 2, 1)},
		"raw, of another size": {`,"width":2,"height":1`, image, wire.Header{Codec: wire.RGB24, Width: 1,
			Height: 2}, make([]byte, 6), ok(stream.RGB24, 1, 2)},
		"raw, in two planes": {`,"width":2,"height":2`, image, wire.Header{Codec: wire.NV12}, make([]byte, 6),
			ok(stream.NV12, 2, 2)},
		"a part": {``, image, roi(wire.Header{Codec: wire.JPEG}, 1, 2, 8, 8), jpeg,
			ok(stream.JPEG, 0, 0)},
		"a part without width": {``, image, roi(wire.Header{Codec: wire.JPEG}, 1, 2, 0, 8), jpeg,
			"error invalid_argument ext.roi"},
		"a part without height": {``, image, roi(wire.Header{Codec: wire.JPEG}, 1, 2, 8, 0), jpeg,
			"error invalid_argument ext.roi"},
		"a part of tensors": {``, image, roi(wire.Header{Kind: wire.KindTensor, Codec: wire.Tensors}, 1, 2,
			8, 8), nil, "error invalid_argument ext.roi"},
		"a codec that it was not for": {`,"codec":"nonsense"`, image, wire.Header{}, jpeg,
			"error invalid_argument open.codec"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				r.model = &stream.Model{Name: "m", AcceptsAnyInput: c.image == nil, Image: c.image,
					Inputs:   []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{4, 4, 3}}},
					MaxBatch: 1}
				v, _ := r.hello()
				v.say(`{"type":"open","sid":1,"outputs":"none"` + c.open + `}`)
				if opened := v.all(); opened[0].Type() != "opened" {
					if got := describe(opened); got != c.want+" 1" {
						t.Errorf("%s, want %s", got, c.want)
					}
					r.stop()
					return
				}
				c.h.SID, c.h.Seq = 1, 7
				if c.h.Kind == 0 {
					c.h.Kind = wire.KindFrame
				}
				v.binary(append(wire.AppendHeader(nil, &c.h), c.data...))
				if all := v.all(); len(all) > 0 {
					if got := describe(all); got != c.want+" 1/7" {
						t.Errorf("%s, want %s", got, c.want)
					}
				} else {
					req := r.take(0)
					if got := ok(req.Codec, req.Width, req.Height); got != c.want ||
						(req.Region != stream.Region{}) != c.h.Ext.HasROI {
						t.Errorf("%s, part %v, want %s", got, req.Region, c.want)
					}
					finish(req)
				}
				r.stop()
			})
		})
	}
}

// A frame without memory is dropped if the header identifies the frame; the rest of the header applies.
func TestFramesWithoutMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		v, _ := r.hello()
		v.say(`{"type":"open","sid":1,"outputs":"none","policy":{"mode":"every"}}`)
		v.all()
		all, err := r.mem.Lease(900 << 10)
		if err != nil {
			t.Fatal(err)
		}
		large := bytes.Repeat([]byte("x"), 200<<10)
		send := func(h wire.Header) { v.binary(append(wire.AppendHeader(nil, &h), large...)) }
		send(wire.Header{Kind: wire.KindFrame, SID: 1, Seq: 1})
		v.expect("drop 1 [[1 1]] memory ack 1 of 17")
		send(roi(wire.Header{Kind: wire.KindFrame, SID: 1, Seq: 2}, 0, 0, 8, 8))
		v.expect("drop 1 [[2 2]] memory ack 2 of 18")
		send(wire.Header{Kind: wire.KindFrame, SID: 2, Seq: 3})
		v.expect("error not_found sid 2/3")
		send(wire.Header{Kind: wire.KindConfig, Codec: wire.H264, SID: 1})
		v.expect("error overloaded memory.budget 1/0")
		send(wire.Header{Kind: wire.KindFrame, SID: 1, Seq: 4, Flags: wire.FlagEnd})
		v.expect("drop 1 [[4 4]] memory ack 3 of 19", "closed 1 client {3 0 0 3 0}")
		// No version of the protocol has this header.
		_ = v.WriteMessage(websocket.BinaryMessage, append([]byte{99}, large...))
		synctest.Wait()
		if v.ended() != int(wire.CloseMalformed) {
			t.Errorf("%d", v.ended())
		}
		all.Release()
		r.stop()
	})
}

// A malformed message ends as an error of its frame if the frame is identifiable, and otherwise ends the connection.
func TestMalformedMedia(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		v, _ := r.hello()
		v.say(`{"type":"open","sid":1,"outputs":"none"}`)
		v.all()
		bad := func(kind wire.Kind, seq uint64) []byte {
			b := wire.AppendHeader(nil, &wire.Header{Kind: wire.KindFrame, SID: 1, Seq: seq})
			b[1], b[3] = byte(kind), 0x80 // an unknown flag
			return b
		}
		v.binary(bad(wire.KindFrame, 1))
		v.expect("error unsupported flags 1/1")
		v.binary(bad(wire.KindConfig, 2))
		v.expect("error unsupported flags 1/2")
		v.frames(1, 2) // the seq of a message without a frame is free
		r.answer(0, 0, 0)
		v.expect("result 1/2 ack 2 of 6")
		v.binary(nil)
		v.expect("closed 1 error {2 1 1 0 1}", "error invalid_argument header")
		if v.ended() != int(wire.CloseMalformed) {
			t.Errorf("%d", v.ended())
		}
		r.stop()
	})
}

// Each kind of ending has its own count; an unsendable result counts as an error.
func TestTotals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		v, _ := r.hello()
		v.say(`{"type":"open","sid":1,"outputs":"none","policy":{"mode":"every"}}`)
		v.all()
		v.frames(1, 1, 2, 3, 4, 5, 6, 6)
		r.answer(0, 0, 0)
		for _, why := range []stream.Reason{stream.Stale, stream.Memory} {
			req := r.take(0)
			req.Drop(why)
			req.Unbind()
		}
		req := r.take(0)
		req.Fail(stream.Errorf(stream.Internal, "", "x"))
		req.Unbind()
		v.all()
		v.say(`{"type":"flush","sid":1}`)
		v.say(`{"type":"close","sid":1}`)
		all := v.all()
		if got := describe(all[len(all)-1:]); got != "closed 1 client {7 6 1 4 2}" {
			t.Error(describe(all))
		}
		r.stop()
	})
}

// An update takes effect at once, and the answer contains the remaining credit; an invalid update returns an error
// and changes nothing.
func TestUpdateOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		v, _ := r.hello()
		v.say(`{"type":"open","sid":1,"outputs":"none","policy":{"mode":"every","window":4}}`)
		v.all()
		v.say(`{"type":"update","sid":1,"policy":{"window":6},"outputs":"json"}`)
		v.expect(`credit {"sid":1,"credit_limit":6}`)
		v.frames(1, 1)
		v.say(`{"type":"update","sid":1,"outputs":"none"}`)
		v.expect(`credit {"sid":1,"credit_limit":6}`)
		c := r.session(1)
		if n := len(c.form.all); n != 2 {
			t.Errorf("%d forms while a frame is in flight", n)
		}
		r.answer(0, 0, 0)
		v.all()
		v.say(`{"type":"update","sid":1,"outputs":"binary"}`)
		v.expect(`credit {"sid":1,"credit_limit":7,"ack":1}`)
		if n := len(c.form.all); n != 1 {
			t.Errorf("%d forms while no frame is in flight", n)
		}
		v.say(`{"type":"update","sid":1,"policy":{"mode":"latest","window":5,"max_fps":-1}}`)
		v.expect("error invalid_argument update.policy.max_fps 1")
		v.say(`{"type":"update","sid":1,"outputs":"x"}`)
		v.expect("error invalid_argument update.outputs 1")
		v.say(`{"type":"open","sid":2,"stateful":true}`)
		v.expect("error unsupported open.stateful 2")
		r.stop()
	})
}

// Results are sent in the form requested for their stream.
func TestFormsOfResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		v, _ := r.hello()
		for sid, form := range []string{"json", "binary", "none"} {
			v.say(fmt.Sprintf(`{"type":"open","sid":%d,"outputs":"%s"}`, sid, form))
			v.frames(uint32(sid), 1)
			req := r.take(sid)
			req.FinishSingle(stream.Tensor{Name: "x", Datatype: stream.Uint8, Shape: []int{1}, Data: []byte{9}}, nil,
				false)
			req.Unbind()
		}
		results := slices.DeleteFunc(v.all(), func(m wire.Message) bool { return m.Type() == "opened" })
		if got := describe(results); got != "result 0/1 ack 1 of 5 with outputs; result 1/1 binary; result 2/1 ack "+
			"1 of 5" {
			t.Error(got)
		}
		r.stop()
	})
}

func TestCodecsOfVideo(t *testing.T) {
	for c, video := range map[stream.Codec]bool{
		stream.Opaque: false, stream.WebP: false, stream.H264: true, stream.VP8: true, stream.VP9: true,
		stream.AV1: true, stream.RGB24: false,
	} {
		if isVideo(c) != video {
			t.Errorf("%s: %v", c, !video)
		}
	}
}

// session returns the channel of a stream of the only session.
func (r *rig) session(sid uint32) *channel {
	for _, s := range r.list() {
		return s.channel(sid)
	}
	return nil
}
