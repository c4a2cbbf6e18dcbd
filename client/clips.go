package client

import (
	"context"
	"io"
	"net/http"
	"time"

	"millrace/stream"
	"millrace/stream/rules"
)

// Clip is a video of a server stream with events.
type Clip struct {
	ID        string      `json:"id"`
	Stream    string      `json:"stream"`
	State     string      `json:"state"` // recording or ready
	Begin     time.Time   `json:"begin"` // of the first picture, by the server's clock
	Seconds   float64     `json:"seconds"`
	Codec     string      `json:"codec"` // by MP4's name, such as avc1
	Bytes     int64       `json:"bytes"` // of all files
	Events    []ClipEvent `json:"events"`
	Cut       string      `json:"cut,omitempty"` // why the clip ended early
	Favourite bool        `json:"favourite,omitempty"`
}

// ClipEvent is an event of a clip.
type ClipEvent struct {
	Event   rules.Event `json:"event"`
	AtUS    int64       `json:"at_us"`             // in the clip
	Picture int         `json:"picture,omitempty"` // number of its picture; 0 = none
}

// ClipQuery selects clips. Empty fields select all.
type ClipQuery struct {
	Stream string
	Event  string // id of an event
	Limit  int    // 0 = 100, at most 1000
	Before string // the place returned with the page before
}

// Clips returns a page of the server's clips, the newest first, and the place of the next page, "" at the end.
func (c *Client) Clips(ctx context.Context, q ClipQuery) (list []Clip, next string, err error) {
	v := pageQuery(q.Limit, map[string]string{"stream": q.Stream, "event": q.Event, "before": q.Before})
	var page struct {
		Clips []Clip `json:"clips"`
		Next  string `json:"next"`
	}
	err = c.doJSON(ctx, http.MethodGet, c.url(v, "v2", "clips"), nil, &page)
	return page.Clips, page.Next, err
}

// ClipVideo opens the video of a clip, an MP4. The caller closes the reader.
func (c *Client) ClipVideo(ctx context.Context, id string) (io.ReadCloser, error) {
	if id == "" {
		return nil, stream.Errorf(stream.InvalidArgument, "id", "is empty: want the id of a clip")
	}
	resp, err := c.open(ctx, http.Header{}, c.url(nil, "v2", "clips", id, "video"))
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
