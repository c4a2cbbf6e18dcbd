package grpc

import (
	"io"

	"google.golang.org/grpc/status"

	"millrace/ingest"
	"millrace/ingest/inference"
	"millrace/internal/inferencepb"
	"millrace/internal/oip"
	"millrace/stream"
)

// next returns the next answer: request k with result r, or with k's refusal. last means that this answer ends k's
// turn. k is nil when no answer is ready; over then means that no answer will come.
func (x *session) next() (k *call, r *stream.Result, last, over bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.first == nil {
		return nil, nil, false, x.readErr != nil
	}
	var before *call
	waits := false // an earlier request in order has not ended
	for k = x.first; k != nil; before, k = k, k.after {
		if (k.unordered || !waits) && (k.sent < len(k.results) || k.done) {
			break
		}
		waits = waits || !k.unordered
	}
	switch {
	case k == nil:
		return nil, nil, false, false
	case k.sent < len(k.results):
		r = k.results[k.sent]
		k.results[k.sent] = nil
		k.sent++
		last = !r.Partial
		if r.Partial {
			k.partial = true
			x.parts--
			x.makeRoom()
		}
		if k.sent == len(k.results) {
			k.results, k.sent = k.results[:0], 0
		}
	case k.done:
		last = true
	}
	if last {
		if before == nil {
			x.first = k.after
		} else {
			before.after = k.after
		}
		if x.last == k {
			x.last = before
		}
		k.after = nil
		x.makeRoom()
	}
	return k, r, last, false
}

// makeRoom wakes the workers that wait for room. x.mu is held.
func (x *session) makeRoom() {
	if x.held > 0 {
		x.held = 0
		close(x.room)
		x.room = make(chan struct{})
	}
}

// answerAll writes all answers until none will come, and returns the final error of the call.
func (x *session) answerAll() error {
	ended := x.service.ended
	draining := false
	for {
		k, r, last, over := x.next()
		switch {
		case k != nil:
			err := x.answer(k, r, last)
			if last {
				if k.sequence != nil {
					k.sequence.Finish()
				}
				if k.singleFeed != nil {
					k.singleFeed.stream.Close(stream.ByClient)
				}
				k.free()
				x.window.Answer(1)
			}
			if err != nil {
				return err
			}
			continue
		case draining:
			return statusError(ingest.ErrDraining)
		case over && x.readErr == io.EOF:
			return nil
		case over:
			return x.readErr
		}
		select {
		case <-x.wake:
		case <-x.ctx.Done():
			return status.FromContextError(x.ctx.Err()).Err()
		case <-ended: // the models have ended, and all frames with them
			ended, draining = nil, true
		}
	}
}

// answer writes one answer to request k: result r, or the reason for the missing result.
func (x *session) answer(k *call, r *stream.Result, last bool) error {
	if k.failed != nil {
		k.drop(r)
		return nil
	}
	err := k.refusal
	if r != nil {
		k.Result = r
		switch {
		case r.Outcome == stream.Failed:
			err = inference.InRequest(r.Err, k.Request.Inputs)
		case r.Outcome == stream.Dropped && !x.declared:
			if err = r.Err; err == nil { // r.Err is more specific than the reason
				err = ingest.DropError(r.Reason)
			}
		case last && len(r.Outputs) == 0 && (k.partial || r.Model.Decoupled) && !k.sendLast:
			k.release()
			return nil // an ending without an answer
		}
	}
	var m any
	if err == nil {
		if r != nil && last {
			r.Remember()
		}
		var out *reply
		if out, err = x.result(k, last); err != nil {
			r.CountUnsendable(err)
		} else {
			x.out += out.size
			m = out
		}
	}
	if err != nil {
		if k.release(); !last {
			k.failed = err
		}
		err = x.publicError(err)
		if x.errors {
			return statusError(err)
		}
		m = failure(k, err)
	}
	return x.SendMsg(m)
}

// drop releases a result hidden from the client. If the result is the ending of a request with an unsendable partial
// result, drop counts the result.
func (k *call) drop(r *stream.Result) {
	if k.failed != nil && r.Outcome == stream.Answered {
		r.CountUnsendable(k.failed)
	}
	r.Release()
}

// release releases the unsent result.
func (k *call) release() {
	if k.Result != nil {
		k.Result.Release()
		k.Result = nil
	}
}

// result makes the response with k.Result, and takes over k.Result unless result fails.
func (x *session) result(k *call, last bool) (*reply, error) {
	if k.Result.Outcome == stream.Dropped {
		k.ReplyNone()
		k.Response.Params = append(k.Response.Params, oip.Param{Key: droppedKey, Kind: oip.String,
			Str: string(k.Result.Reason)})
	} else if err := k.Reply(); err != nil {
		return nil, err
	}
	k.Response.Params = append(k.Response.Params, oip.Param{Key: finalKey, Kind: oip.Boolean, Bool: last})
	r, err := newReply(k, k.Result, true)
	if err == nil {
		k.Result = nil
	}
	return r, err
}

// sendLastKey is the request parameter that asks for a last response even if the model ends the request without
// outputs.
const sendLastKey = "triton_enable_empty_final_response"

// finalKey is the parameter that marks the last response of a request.
const finalKey = "triton_final_response"

// droppedKey is the parameter in the response to a request dropped by the stream's policy; the value is the reason.
const droppedKey = "dropped"

// failure returns the response to a failed request.
func failure(k *call, err error) *inferencepb.ModelStreamInferResponse {
	return &inferencepb.ModelStreamInferResponse{
		ErrorMessage: err.Error(),
		InferResponse: &inferencepb.ModelInferResponse{
			ModelName: k.Request.ModelName, ModelVersion: k.Request.ModelVersion, Id: k.Request.ID,
			Parameters: map[string]*inferencepb.InferParameter{
				finalKey: {ParameterChoice: &inferencepb.InferParameter_BoolParam{BoolParam: true}}},
		},
	}
}

// end ends the call: unanswered requests end now and free their places.
func (x *session) end(err error) {
	close(x.stop)
	x.submitting.Lock()
	defer x.submitting.Unlock()
	x.mu.Lock()
	x.gone = true
	close(x.room)
	feeds := x.feeds
	x.feeds = nil
	x.mu.Unlock()
	for _, f := range feeds {
		if err == nil {
			f.stream.Close(stream.ByClient)
		} else {
			f.stream.Abandon(stream.Errorf(stream.Canceled, "", "the call of ModelStreamInfer has ended"))
		}
	}
	for _, f := range feeds {
		<-f.stream.Finished()
	}
	x.mu.Lock()
	k := x.first
	x.first, x.last = nil, nil
	x.mu.Unlock()
	for k != nil {
		after := k.after
		if k.sequence != nil {
			x.mu.Lock()
			done := k.done
			x.mu.Unlock()
			if !done {
				k.sequence.Abandon(stream.Errorf(stream.Canceled, "",
					"a call of ModelStreamInfer ended before the result of its request, which ends the sequence"))
			}
			k.sequence.Finish()
		}
		for _, r := range k.results[k.sent:] {
			k.drop(r)
		}
		k.free()
		k = after
	}
}
