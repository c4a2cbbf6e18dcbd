package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"millrace/client"
	"millrace/stream"
)

// opaqueFrame makes frames of so many bytes.
func opaqueFrame(n int) func() client.Frame {
	data := make([]byte, n)
	return func() client.Frame { return client.Frame{Data: data, Codec: "opaque"} }
}

// tensorFrame makes frames with one tensor.
func tensorFrame(name string) func() client.Frame {
	data := make([]byte, 64)
	return func() client.Frame {
		return client.Frame{Inputs: []stream.Tensor{{Name: name, Datatype: stream.Uint8, Shape: []int{1, len(data)},
			Data: data}}}
	}
}

// sessionRound makes rounds of millrace.v1: a session with two streams, one of each policy.
func sessionRound(next func() client.Frame) func(context.Context, *visitor, *rand.Rand) error {
	return func(ctx context.Context, v *visitor, rng *rand.Rand) (err error) {
		c, err := client.New(v.http)
		if err != nil {
			return err
		}
		defer c.Close()
		s, err := c.Session(ctx, client.SessionOptions{GiveUp: patience / 2})
		if err != nil {
			return err
		}
		defer s.Close()
		var streams []*client.Stream
		for _, mode := range []stream.Mode{stream.Latest, stream.Every} {
			st, err := s.Open(ctx, v.account.model, client.StreamOptions{Policy: stream.Policy{Mode: mode},
				OnReply: v.reply})
			if err != nil {
				return err
			}
			streams = append(streams, st)
		}
		sent := make([]uint64, len(streams))
		for range frames(rng) {
			pace(ctx, rng)
			i := rng.IntN(len(streams))
			st := streams[i]
			v.account.send() // before, since the ending may come at once
			if _, err := st.Send(ctx, next()); err != nil {
				v.account.unsend()
				return fmt.Errorf("sending: %w", err)
			}
			sent[i]++
		}
		for i, st := range streams {
			if err := v.finish(ctx, st, sent[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

// finish closes a stream when all its frames have ended. The server's totals must include all frames, unless the
// connection was broken and the totals were lost.
func (v *visitor) finish(ctx context.Context, st *client.Stream, sent uint64) error {
	if err := st.Drain(ctx); err != nil {
		return err
	}
	totals, err := st.Close(ctx)
	if err == nil && !v.account.cut && (totals.Received != sent || totals.Results+totals.Drops+totals.Errors != sent) {
		err = fmt.Errorf("a stream with %d frames was closed with the totals %+v", sent, totals)
	}
	return err
}

// reply counts an ending of a session.
func (v *visitor) reply(r client.Reply) {
	switch {
	case r.Partial:
	case r.Lost:
		v.account.lose(1)
	case r.Dropped != "":
		v.account.drop(string(r.Dropped))
	case r.Err != nil:
		v.account.fail(string(stream.CodeOf(r.Err)))
	default:
		v.account.answer()
	}
}
