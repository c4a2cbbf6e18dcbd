package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
)

// restRequest is the body of a request and its content type.
type restRequest struct{ kind, query, body string }

// text draws an input of the Python service, now and then an input that makes the service fail.
func text(rng *rand.Rand) string {
	switch n := rng.IntN(600); {
	case n == 0:
		// different each time: the server refuses a request that has ended a process
		return fmt.Sprintf("exit %d", rng.IntN(1_000_000))
	case n == 1:
		return "hang"
	case n < 10:
		return "raise"
	}
	return "to be or not to be"
}

func wordsRequest(rng *rand.Rand) restRequest {
	return restRequest{"application/json", "",
		fmt.Sprintf(`{"inputs":[{"name":"text","datatype":"BYTES","shape":[1],"data":[%q]}]}`, text(rng))}
}

// bytesRequest makes requests of so many bytes.
func bytesRequest(n int) func(*rand.Rand) restRequest {
	body := string(bytes.Repeat([]byte{'x'}, n))
	return func(*rand.Rand) restRequest {
		return restRequest{"application/octet-stream", fmt.Sprintf("?datatype=UINT8&shape=1,%d&outputs=binary", n),
			body}
	}
}

// pictureRequest makes requests with a picture, damaged in one of ten.
func pictureRequest(rng *rand.Rand) restRequest {
	p := pictures[rng.IntN(len(pictures))]
	switch rng.IntN(20) {
	case 0:
		p = p[:rng.IntN(len(p))+1]
	case 1:
		p = spoil(p, rng)
	}
	return restRequest{"image/jpeg", "", string(p)}
}

func mlpRequest(rng *rand.Rand) restRequest {
	row := make([]float32, mlpWidth)
	for i := range row {
		row[i] = rng.Float32()
	}
	data, _ := json.Marshal(row)
	return restRequest{"application/json", "",
		fmt.Sprintf(`{"inputs":[{"name":"x","datatype":"FP32","shape":[1,%d],"data":%s}]}`, mlpWidth, data)}
}

// restRounds makes rounds of requests over REST.
func restRounds(next func(*rand.Rand) restRequest) func(context.Context, *visitor, *rand.Rand) error {
	return func(ctx context.Context, v *visitor, rng *rand.Rand) error {
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		c := &http.Client{Transport: transport}
		for range frames(rng) {
			pace(ctx, rng)
			if err := v.request(ctx, c, next(rng)); err != nil {
				return err
			}
		}
		return nil
	}
}

// request sends a request and counts the ending.
func (v *visitor) request(ctx context.Context, c *http.Client, q restRequest) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+v.http+"/v2/models/"+v.account.model+
		"/infer"+q.query, bytes.NewReader([]byte(q.body)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", q.kind)
	v.account.send()
	r, err := c.Do(req)
	if err != nil {
		v.account.lose(1)
		return err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		v.account.lose(1)
		return err
	}
	if r.StatusCode == http.StatusOK {
		v.account.answer()
		return nil
	}
	var e struct{ Code string }
	if err := json.Unmarshal(text, &e); err != nil || e.Code == "" {
		v.account.lose(1)
		return fmt.Errorf("the server answered %s: %.200s", r.Status, text)
	}
	v.account.fail(e.Code)
	return nil
}
